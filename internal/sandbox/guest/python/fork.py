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
    os.environb.update(environment)
    if site := sys.modules.get("site"):
        site.USER_BASE = site.USER_SITE = None
        site.getusersitepackages()
    threads = int(os.environ.get("OPENBLAS_NUM_THREADS") or 1)
    if threads > 1:
        _airlock_threads(threads)


def _airlock_touch(environment):
    """Do, before there is an order, a little of what a first cell does. Memory
    that is shared with the fork server is copied, and code mapped, when it is
    first used; where faults are dear, that is most of a small cell's time."""
    import json
    import sys

    def run():
        json.loads(json.dumps({"a": [1, "b"]}))
        _airlock_settle(environment)
        if numpy := sys.modules.get("numpy"):
            numpy.arange(3.0).sum()
        if pandas := sys.modules.get("pandas"):
            str(pandas.DataFrame({"a": [1]}))

    try:
        run()
    except Exception:  # a broken library breaks the cell that uses it
        pass


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
        """An order: four descriptors beside its length, then the environment."""
        head, fds, _, _ = socket.recv_fds(stream, 4, 4)
        head += receive(stream, 4 - len(head))
        return receive(stream, struct.unpack(">I", head)[0]), fds

    def say(*fds, **message):
        body = json.dumps(message).encode()
        body = struct.pack(">I", len(body)) + body
        # The bytes beside descriptors are few enough to go at once.
        control.sendall(body[socket.send_fds(control, [body], fds) if fds else 0 :])

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

    def become(orders, prepared):
        """Make this process different from its siblings, and return what waits for
        its order."""
        _airlock_touch(dict(os.environb))
        _airlock_renew()

        def order():
            prepared()  # there is nothing left to do ahead of time
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
            _airlock_settle(dict(pair.split(b"=", 1) for pair in body.split(b"\0") if pair))
            gc.enable()

        return order

    def fork():
        """Fork twice, so that the guest and not this process is the parent, and
        tell the guest who it is and where it takes its order. Returns in the
        child only if it was forked, with its order, and else None."""
        ours, theirs = socket.socketpair()
        r, w = os.pipe()
        try:
            between = os.fork()
            if between == 0:
                inner = os.fork()
                if inner == 0:
                    for end in (r, w):
                        os.close(end)
                    ours.close()
                    control.close()
                    os.setsid()
                    return become(theirs, lambda: theirs.sendall(b"\0"))
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
        if len(answer) == 4 and ours.recv(1):
            say(ours.fileno(), t="forked", pid=struct.unpack("i", answer)[0])
        ours.close()

    home, way, names, server = sys.argv[1], sys.argv[2], sys.argv[3:], os.getpid()
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
    if way == "become":
        return become(control, lambda: say(t="ready"))
    # One child waits for its order, so that no cell waits for a fork. The guest
    # asks for the next one with a byte.
    while True:
        if order := fork():
            return order
        receive(control, 1)


_airlock_main(_airlock_serve(), _airlock_leaver())
