"""The fork server. See the package comment of python.go; cell.py stands above this text."""


def _airlock_renew(environment):
    """Undo in a child what must differ from its siblings, and what the fork
    server had set for itself alone. Each part counts only if it was imported."""
    import os
    import sys

    os.environb.clear()
    for pair in environment:
        key, _, value = pair.partition(b"=")
        os.environb[key] = value

    def loaded(name):
        return sys.modules.get(name)

    if random := loaded("random"):
        random.seed()
    if numpy := loaded("numpy.random"):
        numpy.seed()
    if uuid := loaded("uuid"):
        uuid._node = uuid._last_timestamp = None
    if tempfile := loaded("tempfile"):
        tempfile._name_sequence = tempfile.tempdir = None
    if process := loaded("multiprocessing.process"):
        process.current_process().authkey = os.urandom(32)
    if site := loaded("site"):
        site.USER_BASE = site.USER_SITE = None
        site.getusersitepackages()
    if matplotlib := loaded("matplotlib"):
        # They remember the folders of the fork server.
        for found in (matplotlib.get_configdir, matplotlib.get_cachedir):
            for name, cell in zip(found.__code__.co_freevars, found.__closure__ or ()):
                if name == "called":
                    cell.cell_contents = False
    threads = int(os.environ.get("OPENBLAS_NUM_THREADS") or 1)
    if threads > 1:
        _airlock_threads(threads)


def _airlock_threads(n):
    """Give the numeric library back the threads it was started without."""
    import ctypes

    with open("/proc/self/maps") as maps:
        libraries = {line.split(maxsplit=5)[5].strip() for line in maps if "openblas" in line}
    for path in libraries:
        library = ctypes.CDLL(path)
        for name in ("openblas_set_num_threads", "openblas_set_num_threads64_", "scipy_openblas_set_num_threads64_"):
            if hasattr(library, name):
                getattr(library, name)(n)


def _airlock_serve():
    import fcntl
    import gc
    import importlib
    import json
    import os
    import shutil
    import signal
    import socket
    import struct
    import sys
    import tempfile
    import threading

    control = socket.socket(fileno=fcntl.fcntl(3, fcntl.F_DUPFD_CLOEXEC, 200))
    os.close(3)
    # No handler: what the code sends here ends the fork server and nothing else.
    signal.signal(signal.SIGINT, signal.SIG_DFL)

    def dumpable(value):
        """Without it the memory of the fork server lies open to the code, whose
        uid it has. Only ctypes can ask for that."""
        try:
            import ctypes

            ctypes.CDLL(None).prctl(4, value, 0, 0, 0)  # PR_SET_DUMPABLE
        except (ImportError, OSError, AttributeError):
            pass

    def receive(n):
        buf = bytearray()
        while len(buf) < n:
            part = control.recv(n - len(buf))
            if not part:
                os._exit(0)  # the guest is gone
            buf += part
        return bytes(buf)

    def next_order():
        """An order: four descriptors beside its length, then the environment."""
        head, fds, _, _ = socket.recv_fds(control, 4, 4)
        if not head:
            os._exit(0)
        head += receive(4 - len(head))
        body = receive(struct.unpack(">I", head)[0])
        return [pair for pair in body.split(b"\0") if pair], fds

    def say(**message):
        body = json.dumps(message).encode()
        control.sendall(struct.pack(">I", len(body)) + body)

    def preload(names):
        scratch = os.environ["MPLCONFIGDIR"] = tempfile.mkdtemp(dir="/dev/shm")
        try:
            for name in names:
                try:
                    importlib.import_module(name)
                except Exception:  # this image has none, or a broken one
                    pass
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        for thread in threading.enumerate():
            if thread is not threading.current_thread():
                thread.join(10)

    def become(fds, environment):
        """The child that is going to run cells."""
        os.setsid()
        high = [fcntl.fcntl(fd, fcntl.F_DUPFD, 300) for fd in fds]
        for low, fd in enumerate(high):
            os.dup2(fd, low)
        os.closerange(4, 1 << 16)
        os.chdir(home)
        dumpable(1)
        _airlock_renew(environment)
        gc.enable()

    def fork(fds, environment):
        """Fork twice, so that the guest and not this process is the parent.
        The pid is 0 in the child and negative if there is none."""
        r, w = os.pipe()
        try:
            between = os.fork()
        except OSError:
            os.close(r)
            os.close(w)
            return -1
        if between == 0:
            try:
                pid = os.fork()
            except OSError:
                os._exit(1)
            if pid == 0:
                become(fds, environment)
                return 0
            os.write(w, struct.pack("i", pid))
            os._exit(0)
        os.close(w)
        answer = os.read(r, 4)
        os.close(r)
        os.waitpid(between, 0)
        return struct.unpack("i", answer)[0] if len(answer) == 4 else -1

    home, names = sys.argv[1], sys.argv[2:]
    dumpable(0)
    preload(names)
    tasks = len(os.listdir("/proc/self/task"))
    if tasks != 1:
        # A thread does not survive a fork, but the locks it holds do.
        say(t="failed", why="%d threads are left after the imports" % tasks)
        os._exit(1)
    gc.collect()
    gc.disable()
    gc.freeze()
    say(t="ready")
    while True:
        environment, fds = next_order()
        pid = fork(fds, environment)
        if pid == 0:
            return
        for fd in fds:
            os.close(fd)
        say(t="forked", pid=pid)


_airlock_serve()
_airlock_main()
