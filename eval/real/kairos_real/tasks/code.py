"""Jobs on source code: JavaScript, C, shell, Rust, Python."""
from ..task import Task, replaced, sh, write

NODE = "node --test tests/"


def tasks():
    return [*javascript(), *c(), *shell(), *rust(), *python()]


def javascript():
    slug = "exports.slug = (title) => title.toLowerCase().replace(/ /g, '-');\n"
    test = ("const test = require('node:test');\nconst assert = require('node:assert');\nconst { slug } = require('../lib/slug.js');\n\n"
            "test('plain', () => assert.equal(slug('Hello World'), 'hello-world'));\n"
            "test('marks', () => assert.equal(slug('What? Now!'), 'what-now'));\n")
    cart = ("function total(items) {\n  let sum = 0;\n  for (const item of items) sum += item.price * item.count;\n  return sum;\n}\n\n"
            "module.exports = { total };\n")
    cart_test = ("const test = require('node:test');\nconst assert = require('node:assert');\nconst cart = require('../lib/cart.js');\n\n"
                 "test('total', () => assert.equal(cart.total([{ price: 2, count: 3 }]), 6));\n")
    old = "var http = require('http');\n\nvar start = function (port, done) {\n  var server = http.createServer(function (q, a) {\n    a.end('ok');\n  });\n" \
          "  server.listen(port, function () { done(server); });\n};\n\nexports.start = start;\n"
    new = "const http = require('node:http');\n\nconst start = (port) => new Promise((resolve) => {\n  const server = http.createServer((q, a) => a.end('ok'));\n" \
          "  server.listen(port, () => resolve(server));\n});\n\nexports.start = start;\n"
    manifest = '{\n  "name": "%s",\n  "version": "1.2.0",\n  "license": "MIT",\n  "scripts": {\n    "test": "node --test tests/"\n  }\n}\n'
    return [
        Task("js-slug-fix", "fix", "javascript", "The test in tests/slug.test.js fails for titles with punctuation. Fix lib/slug.js.",
             {"package.json": manifest % "slug", "lib/slug.js": slug, "tests/slug.test.js": test}, ["lib/slug.js", "tests/slug.test.js"],
             [write("lib/slug.js", "exports.slug = (title) => title.toLowerCase().replace(/[^a-z0-9]+/g, '-').replace(/^-|-$/g, '');\n")],
             check=NODE, test=NODE, changes=["lib/slug.js"]),
        Task("js-cart-discount", "add", "javascript", "Add a function discounted(items, percent) to lib/cart.js and a test of it to tests/cart.test.js.",
             {"package.json": manifest % "cart", "lib/cart.js": cart, "tests/cart.test.js": cart_test}, ["lib/cart.js", "tests/cart.test.js"],
             [write("lib/cart.js", replaced(cart, ("module.exports = { total };", "function discounted(items, percent) {\n"
                                                   "  return total(items) * (100 - percent) / 100;\n}\n\nmodule.exports = { total, discounted };"))),
              write("tests/cart.test.js", cart_test + "test('discounted', () => assert.equal(cart.discounted([{ price: 10, count: 1 }], 25), 7.5));\n")],
             check=NODE + " && node -e \"process.exit(require('./lib/cart.js').discounted([{price:10,count:2}],50)===10?0:1)\" && grep -q discounted tests/cart.test.js",
             test=NODE, changes=["lib/cart.js", "tests/cart.test.js"]),
        Task("js-promise-refactor", "refactor", "javascript", "Turn start() in lib/server.js from a callback into a promise, in modern syntax, and adapt bin/serve.js.",
             {"package.json": manifest % "server", "lib/server.js": old,
              "bin/serve.js": "require('../lib/server.js').start(8080, function () { console.log('up'); });\n"}, ["lib/server.js", "bin/serve.js"],
             [write("lib/server.js", new), write("bin/serve.js", "require('../lib/server.js').start(8080).then(() => console.log('up'));\n")],
             check="node -e \"require('./lib/server.js').start(0).then(s=>{s.close();process.exit(0)},()=>process.exit(1))\" && grep -q then bin/serve.js",
             changes=["lib/server.js", "bin/serve.js"]),
    ]


def c():
    ring = ("#include \"ring.h\"\n\nint ring_put(struct ring *r, int value) {\n    if (r->count > RING_SIZE) return -1;\n    r->items[(r->start + r->count) % RING_SIZE] = value;\n"
            "    r->count++;\n    return 0;\n}\n\nint ring_take(struct ring *r, int *value) {\n    if (r->count == 0) return -1;\n    *value = r->items[r->start];\n"
            "    r->start = (r->start + 1) % RING_SIZE;\n    r->count--;\n    return 0;\n}\n")
    header = "#define RING_SIZE 4\nstruct ring { int items[RING_SIZE]; int start, count; };\nint ring_put(struct ring *, int);\nint ring_take(struct ring *, int *);\n"
    test = ("#include <assert.h>\n#include \"../src/ring.h\"\nint main(void) {\n    struct ring r = {0};\n    for (int i = 0; i < RING_SIZE; i++) assert(ring_put(&r, i) == 0);\n"
            "    assert(ring_put(&r, 9) == -1);\n    int v; assert(ring_take(&r, &v) == 0 && v == 0);\n    return 0;\n}\n")
    build = "mkdir -p /tmp/build && cc -Wall -o /tmp/build/t src/*.c tests/*.c && /tmp/build/t"
    hexdump = "#include <stdio.h>\n\nint main(void) {\n    int c, n = 0;\n    while ((c = getchar()) != EOF) printf(\"%02x%c\", c, ++n % 16 ? ' ' : '\\n');\n    return 0;\n}\n"
    trim = "#include <string.h>\n#include \"trim.h\"\n\nchar *trim(char *text) {\n    while (*text == ' ') text++;\n    return text;\n}\n"
    trim_test = ("#include <assert.h>\n#include <string.h>\n#include \"../src/trim.h\"\nint main(void) {\n    char a[] = \"  x \";\n    assert(!strcmp(trim(a), \"x\"));\n"
                 "    char b[] = \"   \";\n    assert(!strcmp(trim(b), \"\"));\n    return 0;\n}\n")
    return [
        Task("c-ring-overflow", "fix", "c", "ring_put in src/ring.c accepts one value too many and overwrites the oldest. Fix it; the test is in tests/ring_test.c.",
             {"src/ring.c": ring, "src/ring.h": header, "tests/ring_test.c": test}, ["src/ring.c", "src/ring.h"],
             [write("src/ring.c", replaced(ring, ("r->count > RING_SIZE", "r->count >= RING_SIZE")))], check=build, test=build, changes=["src/ring.c"]),
        Task("c-hexdump-offset", "add", "c", "Make src/hexdump.c print the offset (six hexadecimal digits and a colon) at the start of every line.",
             {"src/hexdump.c": hexdump}, ["src/hexdump.c"],
             [write("src/hexdump.c", "#include <stdio.h>\n\nint main(void) {\n    int c, n = 0;\n    while ((c = getchar()) != EOF) {\n        if (n % 16 == 0) printf(\"%06x: \", n);\n"
                    "        printf(\"%02x%c\", c, ++n % 16 ? ' ' : '\\n');\n    }\n    return 0;\n}\n"),
              sh("cc -Wall -o /tmp/hexdump src/hexdump.c && printf 'hello' | /tmp/hexdump")],
             check="cc -o /tmp/h src/hexdump.c && printf 'aaaaaaaaaaaaaaaab' | /tmp/h | grep -q '^000010: 62'", changes=["src/hexdump.c"]),
        Task("c-trim-end", "fix", "c", "trim() in src/trim.c leaves spaces at the end. Fix it so that tests/trim_test.c passes.",
             {"src/trim.c": trim, "src/trim.h": "char *trim(char *);\n", "tests/trim_test.c": trim_test}, ["src/trim.c", "tests/trim_test.c"],
             [write("src/trim.c", replaced(trim, ("    return text;", "    size_t size = strlen(text);\n    while (size && text[size - 1] == ' ') text[--size] = 0;\n    return text;")))],
             check=build, test=build, changes=["src/trim.c"]),
    ]


def shell():
    backup = "#!/bin/sh\n# usage: backup.sh DIR TARGET\ntar cf $2/backup.tar $1\n"
    rotate = "#!/bin/sh\n# Keeps the newest three logs of a directory.\ncd \"$1\" || exit 1\nls -t *.log | tail -n +3 | xargs rm -f\n"
    rotate_test = "rm -rf /tmp/r && mkdir /tmp/r && for i in 1 2 3 4 5; do touch -d \"2026-01-0$i\" /tmp/r/$i.log; done; sh bin/rotate.sh /tmp/r; [ \"$(ls /tmp/r | wc -l)\" = 3 ]"
    return [
        Task("sh-backup-quoting", "fix", "shell", "bin/backup.sh breaks on directories with spaces. Quote its arguments and make it stop on the first error.",
             {"bin/backup.sh": backup}, ["bin/backup.sh"],
             [write("bin/backup.sh", "#!/bin/sh\n# usage: backup.sh DIR TARGET\nset -eu\ntar cf \"$2/backup.tar\" \"$1\"\n"), sh("sh -n bin/backup.sh && echo fine")],
             check="mkdir -p '/tmp/a b' /tmp/t && sh bin/backup.sh '/tmp/a b' /tmp/t 2>/dev/null && test -s /tmp/t/backup.tar", changes=["bin/backup.sh"]),
        Task("sh-rotate-off-by-one", "fix", "shell", "bin/rotate.sh keeps two logs instead of three. Fix it.", {"bin/rotate.sh": rotate}, ["bin/rotate.sh"],
             [write("bin/rotate.sh", replaced(rotate, ("tail -n +3", "tail -n +4")))], check=rotate_test, test=rotate_test, changes=["bin/rotate.sh"]),
        Task("sh-completion-add", "add", "shell", "Write a bash completion for our tool `pads` (subcommands add, list, sync) in completions/pads.bash.",
             {"bin/pads": "#!/bin/sh\ncase $1 in add|list|sync) echo \"$1\";; *) exit 2;; esac\n"}, ["bin/pads"],
             [sh("mkdir -p completions"), write("completions/pads.bash", "_pads() {\n  COMPREPLY=($(compgen -W 'add list sync' -- \"${COMP_WORDS[COMP_CWORD]}\"))\n}\ncomplete -F _pads pads\n"),
              sh("bash -n completions/pads.bash && echo fine")],
             check="bash -c '. completions/pads.bash; COMP_WORDS=(pads l); COMP_CWORD=1; _pads; [ \"$COMPREPLY\" = list ]'", changes=["completions/**", "completions"]),
    ]


def rust():
    lib = ("/// Parses `KEY=VALUE`.\npub fn pair(line: &str) -> Option<(&str, &str)> {\n    let mut parts = line.split('=');\n    Some((parts.next()?, parts.next()?))\n}\n\n"
           "#[cfg(test)]\nmod tests {\n    #[test]\n    fn value_with_equals() {\n        assert_eq!(super::pair(\"a=b=c\"), Some((\"a\", \"b=c\")));\n    }\n}\n")
    manifest = "[package]\nname = \"%s\"\nversion = \"0.3.1\"\nedition = \"2021\"\n"
    units = "/// Bytes in words.\npub fn human(bytes: u64) -> String {\n    format!(\"{bytes} B\")\n}\n"
    return [
        Task("rust-pair-split", "fix", "rust", "pair() in src/lib.rs cuts values that contain an equals sign. Fix it.",
             {"Cargo.toml": manifest % "pairs", "src/lib.rs": lib}, ["src/lib.rs"],
             [write("src/lib.rs", replaced(lib, ("    let mut parts = line.split('=');\n    Some((parts.next()?, parts.next()?))", "    line.split_once('=')")))],
             check="grep -q split_once src/lib.rs && ! grep -q 'split(' src/lib.rs", changes=["src/lib.rs"]),
        Task("rust-human-bytes", "add", "rust", "Let human() in src/units.rs also say KiB and MiB, with one decimal.",
             {"Cargo.toml": manifest % "units", "src/lib.rs": "pub mod units;\n", "src/units.rs": units}, ["src/units.rs"],
             [write("src/units.rs", "/// Bytes in words.\npub fn human(bytes: u64) -> String {\n    let size = bytes as f64;\n    match bytes {\n        0..1024 => format!(\"{bytes} B\"),\n"
                    "        1024..1048576 => format!(\"{:.1} KiB\", size / 1024.0),\n        _ => format!(\"{:.1} MiB\", size / 1048576.0),\n    }\n}\n")],
             check="grep -q KiB src/units.rs && grep -q MiB src/units.rs", changes=["src/units.rs"]),
    ]


def python():
    clean = "import csv\n\n\ndef clean(source, target):\n    with open(source) as rows, open(target, 'w') as out:\n        for row in csv.reader(rows):\n            csv.writer(out).writerow(row)\n"
    test = ("import os, tempfile, unittest\nfrom clean import clean\n\n\nclass Clean(unittest.TestCase):\n    def test_blank_rows_go(self):\n        with tempfile.TemporaryDirectory() as d:\n"
            "            a, b = os.path.join(d, 'a'), os.path.join(d, 'b')\n            open(a, 'w').write('x,y\\n,\\n1,2\\n')\n            clean(a, b)\n"
            "            self.assertEqual(open(b).read().split(), ['x,y', '1,2'])\n")
    rename = "from geometry import area_of_rect\n\nprint(area_of_rect(2, 3))\n"
    unit = "python3 -m unittest discover -s tests -t . -q"
    return [
        Task("py-clean-blank-rows", "fix", "python", "clean() in clean.py should drop rows whose cells are all empty; tests/test_clean.py says how.",
             {"clean.py": clean, "tests/test_clean.py": test, "tests/__init__.py": ""}, ["clean.py", "tests/test_clean.py"],
             [write("clean.py", replaced(clean, ("            csv.writer", "            if any(row):\n                csv.writer")))],
             check=unit, test=unit, changes=["clean.py"]),
        Task("py-rename-function", "refactor", "python", "Rename area_of_rect to rectangle_area in geometry.py and everywhere it is used (main.py, report.py).",
             {"geometry.py": "def area_of_rect(a, b):\n    return a * b\n", "main.py": rename, "report.py": rename}, ["geometry.py", "main.py", "report.py"],
             [sh("sed -i s/area_of_rect/rectangle_area/g geometry.py main.py report.py")],
             check="! grep -rq area_of_rect *.py && [ \"$(python3 main.py)\" = 6 ]", changes=["*.py"]),
        Task("py-cli-add-flag", "add", "python", "Add a --upper flag to greet.py that prints the greeting in capitals.",
             {"greet.py": "import argparse\n\nparser = argparse.ArgumentParser()\nparser.add_argument('name')\nargs = parser.parse_args()\nprint('hello ' + args.name)\n"}, ["greet.py"],
             [write("greet.py", "import argparse\n\nparser = argparse.ArgumentParser()\nparser.add_argument('name')\nparser.add_argument('--upper', action='store_true')\n"
                    "args = parser.parse_args()\ntext = 'hello ' + args.name\nprint(text.upper() if args.upper else text)\n"), sh("python3 greet.py --upper ann")],
             check="[ \"$(python3 greet.py ann --upper)\" = 'HELLO ANN' ]", test="python3 greet.py ann", changes=["greet.py"]),
    ]
