"""The fork server. See the package comment of python.go; cell.py stands above this text."""


def _airlock_renew():
    """Undo in a child what must differ from its siblings. Each part counts only
    if it was imported."""
    import os
    import sys

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
    if matplotlib := loaded("matplotlib"):
        # They remember the folders of the fork server.
        for found in (matplotlib.get_configdir, matplotlib.get_cachedir):
            for name, cell in zip(found.__code__.co_freevars, found.__closure__ or ()):
                if name == "called":
                    cell.cell_contents = False


def _airlock_settle(environment):
    """Take the environment of the code in place of the fork server's."""
    import os
    import sys

    os.environb.clear()
    for pair in environment:
        key, _, value = pair.partition(b"=")
        os.environb[key] = value
    if site := sys.modules.get("site"):
        site.USER_BASE = site.USER_SITE = None
        site.getusersitepackages()
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


def _airlock_leaver():
    """What ends a fresh child: everything that an interpreter does at its end,
    but for what the fork server has imported. To free all that would copy all of
    it first, which costs many times what a small cell does."""
    import atexit
    import gc
    import os
    import sys
    import threading
    import traceback

    inherited = set(sys.modules)

    def each(step, *args):
        try:
            step(*args)
        except BaseException:
            try:
                traceback.print_exc()
            except Exception:  # the cell has closed or broken the stream
                pass

    def clear(names):
        """As the interpreter clears a module: first what is private to it."""
        for private in (True, False):
            for name in list(names):
                if name != "__builtins__" and (not private or name[0] == "_" != name[1:2]):
                    names[name] = None

    def leave(code, names):
        each(threading._shutdown)
        each(atexit._run_exitfuncs)
        each(clear, names)
        for name in reversed([name for name in sys.modules if name not in inherited]):
            each(lambda: clear(vars(sys.modules[name])))
        each(gc.collect)
        for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
            try:
                stream.flush()
            except Exception:  # there is none, or it is closed
                pass
        os._exit(code)

    return leave


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

    def receive(stream, n):
        buf = bytearray()
        while len(buf) < n:
            part = stream.recv(n - len(buf))
            if not part:
                os._exit(0)  # the other side is gone
            buf += part
        return bytes(buf)

    def next_order(stream):
        """An order: descriptors beside its length, then the environment. One
        without descriptors asks for a child ahead of time."""
        head, fds, _, _ = socket.recv_fds(stream, 4, 4)
        head += receive(stream, 4 - len(head))
        return receive(stream, struct.unpack(">I", head)[0]), fds

    def pass_on(stream, body, fds):
        head = struct.pack(">I", len(body))
        stream.sendall(head[socket.send_fds(stream, [head], fds):] + body)

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

    def become(orders):
        """The child: it makes itself different and waits for its order."""
        control.close()
        os.setsid()
        _airlock_renew()
        for name in names:  # touches what the first cell is going to touch
            name in sys.modules and importlib.import_module(name)
        body, fds = next_order(orders)
        high = [fcntl.fcntl(fd, fcntl.F_DUPFD, 300) for fd in fds]
        for low, fd in enumerate(high):
            os.dup2(fd, low)
        orders.close()
        os.closerange(4, 1 << 16)
        try:
            os.chdir(home)
        except OSError:
            os._exit(1)  # a cold one will say why
        dumpable(1)
        _airlock_settle(pair for pair in body.split(b"\0") if pair)
        gc.enable()

    def fork():
        """Fork twice, so that the guest and not this process is the parent. The
        pid is 0 in the child; without one it is negative."""
        ours, theirs = socket.socketpair()
        r, w = os.pipe()
        pid = -1
        try:
            between = os.fork()
            if between == 0:
                inner = os.fork()
                if inner == 0:
                    ours.close()
                    os.close(r)
                    os.close(w)
                    become(theirs)
                    return 0, None
                os.write(w, struct.pack("i", inner))
                os._exit(0)
        except OSError:
            if os.getpid() != server:
                os._exit(1)
            between = 0
        os.close(w)
        theirs.close()
        answer = os.read(r, 4)
        os.close(r)
        if between:
            os.waitpid(between, 0)
        if len(answer) == 4:
            pid = struct.unpack("i", answer)[0]
        return pid, ours

    home, names, server = sys.argv[1], sys.argv[2:], os.getpid()
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
    # One child waits for the next order, so that no cell waits for a fork.
    pid, orders = fork()
    if pid == 0:
        return
    say(t="ready")
    while True:
        body, fds = next_order(control)
        for _ in range(2):
            if pid > 0 and fds:
                try:
                    pass_on(orders, body, fds)
                    break
                except OSError:  # it has been killed meanwhile
                    pid = -1
            if pid <= 0:
                if orders is not None:
                    orders.close()
                pid, orders = fork()
                if pid == 0:
                    return
        for fd in fds:
            os.close(fd)
        if fds:
            say(t="forked", pid=pid)
            pid = -1


_airlock_serve()
_airlock_main(_airlock_leaver())
