#!/usr/bin/env python3
"""gRPC by its own library (PyPI `grpcio`), all four kinds of call.

  serve LOG          in the clear; prints its port as JSON, and writes a line for each message to LOG
  call HOST          every kind of call, over TLS with the roots of whoever runs it; prints what came back
  leak HOST FILE     sends what FILE holds as the second message of a stream; prints how that went
"""

import json
import sys
import threading
from concurrent import futures

import grpc

NAME = "kairos.Calls"
lock = threading.Lock()


def serve(path):
    def note(kind, message):
        with lock, open(path, "a", encoding="utf-8") as log:
            log.write("%s %s\n" % (kind, message.decode()))

    def unary(message, context):
        note("unary", message)
        context.set_trailing_metadata((("x-kind", "unary"),))
        return b"echo " + message

    def down(message, context):
        note("down", message)
        for number in range(int(message)):
            yield b"%d" % number

    def up(messages, context):
        total = 0
        for message in messages:
            note("up", message)
            total += int(message)
        return b"%d" % total

    def both(messages, context):
        for message in messages:
            note("both", message)
            yield b"echo " + message

    def fail(message, context):
        note("fail", message)
        context.abort(grpc.StatusCode.FAILED_PRECONDITION, "not today")

    handlers = {
        "Unary": grpc.unary_unary_rpc_method_handler(unary),
        "Down": grpc.unary_stream_rpc_method_handler(down),
        "Up": grpc.stream_unary_rpc_method_handler(up),
        "Both": grpc.stream_stream_rpc_method_handler(both),
        "Fail": grpc.unary_unary_rpc_method_handler(fail),
    }
    server = grpc.server(futures.ThreadPoolExecutor(8))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(NAME, handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(json.dumps({"port": port}), flush=True)
    server.wait_for_termination()


def connect(host):
    return grpc.secure_channel("%s:443" % host, grpc.ssl_channel_credentials())


def call(host):
    with connect(host) as channel:
        answer, made = channel.unary_unary("/%s/Unary" % NAME).with_call(b"one", timeout=30)
        print("unary", answer.decode(), dict(made.trailing_metadata()).get("x-kind"))
        print("down", *(part.decode() for part in channel.unary_stream("/%s/Down" % NAME)(b"5", timeout=30)))
        print("up", channel.stream_unary("/%s/Up" % NAME)((b"%d" % n for n in range(1, 5)), timeout=30).decode())
        # Each message waits for the answer to the one before.
        turn = threading.Semaphore(1)

        def talk():
            for number in range(3):
                turn.acquire()
                yield b"turn %d" % number

        for part in channel.stream_stream("/%s/Both" % NAME)(talk(), timeout=30):
            print("both", part.decode())
            turn.release()
        try:
            channel.unary_unary("/%s/Fail" % NAME)(b"please", timeout=30)
        except grpc.RpcError as error:
            print("fail", error.code().name, error.details())


def leak(host, path):
    with open(path, "rb") as file:
        secret = file.read().strip()
    turn = threading.Semaphore(1)

    def talk():
        turn.acquire()
        yield b"harmless"
        turn.acquire()
        yield secret

    with connect(host) as channel:
        try:
            for part in channel.stream_stream("/%s/Both" % NAME)(talk(), timeout=30):
                print("both", part.decode())
                turn.release()
            print("it ended well")
        except grpc.RpcError as error:
            print("leak", error.code().name, error.details())


if __name__ == "__main__":
    {"serve": serve, "call": call, "leak": leak}[sys.argv[1]](*sys.argv[2:])
