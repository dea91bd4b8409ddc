"""Looks up names of servers by the static program of a package, in a root folder that has nothing else.

A static glibc reads /etc/hosts and asks DNS itself. Other services would be shared libraries, which
packaging/static/name_service.c keeps it from loading. A lookup is shown by the connection behind it.
`cargo xtask dist --try=names` runs this, as root.
"""
import os, shutil, socket, subprocess, sys, tempfile, threading

# Where names lead to, and where a name server answers.
PLACE, NAME_SERVER = "127.0.0.9", "127.0.0.54"

HOSTS = {"etc/hosts": f"{PLACE} db1\n"}
RESOLVER = {"etc/resolv.conf": f"nameserver {NAME_SERVER}\noptions attempts:1 timeout:2\n"}
# Services that a static program could only load.
SHARED_ONLY = {"etc/nsswitch.conf": "hosts: mymachines resolve myhostname\npasswd: systemd\n"}

CASES = [
    ("an address; no /etc", {}, PLACE, True),
    ("a name in /etc/hosts", HOSTS, "db1", True),
    ("a name by DNS", RESOLVER, "db1.example", True),
    ("a name in /etc/hosts; nsswitch.conf names shared libraries only", HOSTS | SHARED_ONLY, "db1", True),
    ("a name by DNS; nsswitch.conf names shared libraries only", RESOLVER | SHARED_ONLY, "db1.example", True),
    ("an unknown name", RESOLVER, "db2.example", False),
]


def answer(server):
    """Answers questions for db1.example with PLACE, and that there is no other name (RFC 1035, section 4)."""
    while True:
        question, client = server.recvfrom(512)
        name_ends = question.index(0, 12) + 1
        asked, kind = question[12 : name_ends + 4], question[name_ends : name_ends + 2]
        known = asked.startswith(b"\x03db1\x07example\x00")
        answers = int(known and kind == b"\x00\x01")
        # An answer, recursion available; code 3 is "no such name".
        reply = question[:2] + bytes([0x81, 0x80 if known else 0x83, 0, 1, 0, answers, 0, 0, 0, 0]) + asked
        if answers:
            # The name above, type A, class IN, a minute, four bytes.
            reply += bytes([0xC0, 0x0C, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4]) + socket.inet_aton(PLACE)
        server.sendto(reply, client)


def connects(program, files, host, root):
    """Whether `vvm status` in a root folder with these files connects to the server at this host."""
    for path, text in files.items():
        os.makedirs(os.path.join(root, os.path.dirname(path)), exist_ok=True)
        with open(os.path.join(root, path), "w") as file:
            file.write(text)
    shutil.copy(program, os.path.join(root, "vvm"))
    with socket.create_server((PLACE, 0)) as listener:
        listener.settimeout(0.05)
        url = f"postgres://me@{host}:{listener.getsockname()[1]}/vvm?sslmode=disable"
        status = ["/vvm", "status", "--storage", url, "--name", "payroll"]
        with subprocess.Popen(["unshare", "--map-root-user", "--root", root, *status]) as running:
            # It ends by itself: this server says nothing, and a connection is closed at once.
            while running.poll() is None:
                try:
                    listener.accept()[0].close()
                    running.kill()
                    return True
                except socket.timeout:  # Python 3.9 has no other name for it.
                    pass
    return False


server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind((NAME_SERVER, 53))
threading.Thread(target=answer, args=[server], daemon=True).start()
with tempfile.TemporaryDirectory() as package:
    subprocess.run(["dpkg-deb", "-x", sys.argv[1], package], check=True)
    for what, files, host, succeeds in CASES:
        with tempfile.TemporaryDirectory() as root:
            connected = connects(os.path.join(package, "usr/bin/vvm"), files, host, root)
        print(f"{what}: it {'connected' if connected else 'did not connect'}", flush=True)
        if connected != succeeds:
            sys.exit(f"{what}: another outcome was expected")
