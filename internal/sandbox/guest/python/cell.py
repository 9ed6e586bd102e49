"""The resident interpreter for cells. See the package comment of python.go."""


def _airlock_main(order=None, leave=None):
    """Run cells. order returns when the descriptors are there, leave ends a
    fresh interpreter in place of sys.exit; a cold interpreter has neither."""
    import ast
    import base64
    import fcntl
    import io
    import json
    import linecache
    import os
    import resource
    import signal
    import socket
    import struct
    import sys
    import time
    import traceback
    import types

    # High numbers, so that code which closes or reuses low descriptors, as
    # daemons do, loses only its own.
    def move(fd, low):
        return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, low)

    running = False
    interrupted = False

    def on_interrupt(signum, frame):
        nonlocal interrupted
        if running and os.getpid() == main_pid:
            interrupted = True
            raise KeyboardInterrupt
        if os.getpid() != main_pid:
            raise KeyboardInterrupt

    inbox = bytearray()  # what was read and not yet taken

    def receive(n):
        while len(inbox) < n:
            part = control.recv(min(n - len(inbox), 1 << 20))
            if not part:
                os._exit(0)  # the guest is gone
            inbox.extend(part)
        with memoryview(inbox) as view:
            taken = bytes(view[:n])
        del inbox[:n]
        return taken

    def next_message():
        (n,) = struct.unpack(">I", receive(4))
        head, _, code = receive(n).partition(b"\n")
        return json.loads(head), code

    def packed(body=b"", **message):
        head = json.dumps(message).encode() + b"\n"
        return struct.pack(">I", len(head) + len(body)) + head + body

    def say(**message):
        control.sendall(packed(**message))

    def restore_stdio():
        """Whatever an earlier cell did to the streams, this one can print."""
        for fd, saved in enumerate(stdio):
            os.dup2(saved, fd)
        for name, fd, mode in (("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w")):
            real = reals.get(name)
            if real is None or real.closed:
                real = io.open(
                    fd, mode, buffering=1, encoding="utf-8", closefd=False,
                    errors="backslashreplace" if fd == 2 else "surrogateescape",
                )
                reals[name] = real
                setattr(sys, "__%s__" % name, real)
            setattr(sys, name, real)

    reals = {}

    def flush(stream):
        try:
            if stream is not None and not stream.closed:
                stream.flush()
        except Exception:  # a broken stream is the cell's own affair
            pass

    def flush_files(names):
        """A file that a name still holds is written out, so that whoever looks
        at it after the cell sees what the cell wrote."""
        for value in list(names.values()):
            try:
                if isinstance(value, io.IOBase):
                    flush(value)
            except Exception:  # an object that lies about its class
                pass

    # asyncio.run and run_until_complete inside a cell that itself awaits: the
    # loop is suspended while the inner one runs.
    class Suspended:
        def __init__(self, loop):
            self.loop = loop

        def __enter__(self):
            from asyncio import events, tasks

            self.task = tasks.current_task(self.loop)
            events._set_running_loop(None)
            if self.task is not None:
                swap = getattr(tasks, "_swap_current_task", None)
                if swap is not None:
                    swap(self.loop, None)
                else:
                    tasks._leave_task(self.loop, self.task)

        def __exit__(self, *exc):
            from asyncio import events, tasks

            if self.task is not None:
                swap = getattr(tasks, "_swap_current_task", None)
                if swap is not None:
                    swap(self.loop, self.task)
                else:
                    tasks._enter_task(self.loop, self.task)
            events._set_running_loop(self.loop)
            if self.loop is loop_of_cells.get("loop"):
                events.set_event_loop(self.loop)

    loop_of_cells = {}

    def nestable():
        import asyncio
        from asyncio import base_events, events, runners

        plain_run = asyncio.run
        plain_complete = base_events.BaseEventLoop.run_until_complete

        def run(main, **options):
            outer = events._get_running_loop()
            if outer is None:
                try:
                    return plain_run(main, **options)
                finally:
                    if "loop" in loop_of_cells:
                        events.set_event_loop(loop_of_cells["loop"])
            with Suspended(outer):
                return plain_run(main, **options)

        def run_until_complete(self, future):
            outer = events._get_running_loop()
            if outer is None:
                return plain_complete(self, future)
            with Suspended(outer):
                if outer is not self:
                    return plain_complete(self, future)
                task = asyncio.ensure_future(future, loop=self)
                events._set_running_loop(self)
                try:
                    while not task.done():
                        self._run_once()
                finally:
                    events._set_running_loop(None)
                return task.result()

        run.__doc__, run_until_complete.__doc__ = plain_run.__doc__, plain_complete.__doc__
        asyncio.run = runners.run = run
        base_events.BaseEventLoop.run_until_complete = run_until_complete

    class AsyncioHook:
        """Importing asyncio costs 30 ms, so it is adapted when a cell imports it."""

        def find_spec(self, name, path=None, target=None):
            if name != "asyncio":
                return None
            import importlib.util

            sys.meta_path.remove(self)
            spec = importlib.util.find_spec(name)
            if spec is not None and spec.loader is not None:
                execute = spec.loader.exec_module

                def exec_module(module):
                    execute(module)
                    nestable()

                spec.loader.exec_module = exec_module
            return spec

    if "asyncio" in sys.modules:  # the fork server has imported it
        nestable()
    else:
        sys.meta_path.insert(0, AsyncioHook())

    def await_parts(parts, names):
        import asyncio

        loop = loop_of_cells.get("loop")
        if loop is None or loop.is_closed():
            loop = loop_of_cells["loop"] = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)

        async def body():
            value = None
            for part in parts:
                value = eval(part, names)
                if part.co_flags & 0x80:  # CO_COROUTINE: the part awaits
                    value = await value
            return value

        task = loop.create_task(body())
        try:
            return loop.run_until_complete(task)
        except BaseException:
            if not task.done():  # interrupted between two steps
                task.cancel()
                try:
                    loop.run_until_complete(task)
                except BaseException:
                    pass
            raise

    def compile_parts(code, filename):
        tree = ast.parse(code, filename)
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        last = None
        if tree.body and isinstance(tree.body[-1], ast.Expr) and not code.rstrip().endswith(";"):
            last = ast.Expression(tree.body.pop().value)
        parts = []
        if tree.body:
            parts.append(compile(tree, filename, "exec", flags, True))
        if last is not None:
            parts.append(compile(last, filename, "eval", flags, True))
        return parts, last is not None

    def execute(code, filename, names):
        parts, echo = compile_parts(code, filename)
        if any(part.co_flags & 0x80 for part in parts):
            value = await_parts(parts, names)
        else:
            value = None
            for part in parts:
                value = eval(part, names)
        if echo and value is not None:
            names["_"] = value
            print(repr(value))

    def report(error, filename):
        """The traceback as a person knows it: without this file's frames."""
        tb = error.__traceback__
        while tb is not None and not tb.tb_frame.f_code.co_filename.startswith("<cell "):
            tb = tb.tb_next
        if isinstance(error, SyntaxError) and error.filename == filename:
            tb = None
        error.__traceback__ = tb
        while tb is not None and tb.tb_next is not None:
            if tb.tb_next.tb_frame.f_code is on_interrupt.__code__:
                tb.tb_next = None
            tb = tb.tb_next
        trim(error)
        text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        try:
            print(text, end="", file=sys.stderr)
        except Exception:  # the cell has closed or broken it
            restore_stdio()
            print(text, end="", file=sys.stderr)

    def exit_code(error):
        if error.code is None:
            return 0
        if isinstance(error.code, int):
            return error.code & 0xFF
        print(error.code, file=sys.stderr)
        return 1

    def run_cell(code, filename, names):
        try:
            text = code.decode("utf-8")
            linecache.cache[filename] = (len(text), None, text.splitlines(True), filename)
            execute(text, filename, names)
            return 0
        except SystemExit as error:
            return exit_code(error)
        except BaseException as error:
            report(error, filename)
            return 1

    def cpu_ns():
        own = resource.getrusage(resource.RUSAGE_SELF)
        kids = resource.getrusage(resource.RUSAGE_CHILDREN)
        return int((own.ru_utime + own.ru_stime + kids.ru_utime + kids.ru_stime) * 1e9)

    def set_environment(pairs, earlier):
        for key in earlier:
            os.environb.pop(key, None)
        keys = []
        for pair in pairs or ():
            key, _, value = base64.b64decode(pair).partition(b"=")
            os.environb[key] = value
            keys.append(key)
        return keys

    module = types.ModuleType("__main__")
    module.__builtins__ = __builtins__
    sys.modules["__main__"] = module
    names = module.__dict__
    sys.argv = [""]
    if order is not None:
        execute("touched = [n for n in (1, 2)]", "<touch>", {})
        order()
    main_pid = os.getpid()
    control = socket.socket(fileno=move(3, 200))
    os.close(3)
    stdio = [move(fd, 210) for fd in (0, 1, 2)]
    begin, end, trim = _airlock_tools(control, inbox, packed)
    # A stop that comes between two cells must not end the interpreter.
    signal.signal(signal.SIGINT, on_interrupt)
    # Behind the library: a file of the user's that happens to be called like a
    # module must not break the module's other users.
    sys.path.append(os.getcwd())
    keys = []

    while True:
        head, code = next_message()
        if head["t"] != "cell":
            continue
        say(t="begin", cell=head["cell"])
        if head.get("tools"):
            begin(head["tools"], head["cell"], names)
        keys = set_environment(head.get("env"), keys)
        restore_stdio()
        # Again for each cell: an earlier one may have set its own.
        signal.signal(signal.SIGINT, on_interrupt)
        before = cpu_ns()
        result = 1
        interrupted = False
        try:
            try:
                running = True
                result = run_cell(code, "<cell %d>" % head["cell"], names)
            finally:
                running = False
        except KeyboardInterrupt as error:  # it hit just outside the cell
            running = False
            report(error, "")
        code = None
        for stream in (getattr(sys, "stdout", None), getattr(sys, "stderr", None), *reals.values()):
            flush(stream)
        flush_files(names)
        if os.getpid() != main_pid:
            # A child that the cell forked and that ran to the cell's end.
            os._exit(result)
        if head.get("tools"):
            end(names)
        say(
            t="done", cell=head["cell"], code=result, interrupted=interrupted,
            cpu_ns=cpu_ns() - before,
            max_rss=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10,
        )
        if head.get("fresh"):
            signal.signal(signal.SIGINT, signal.default_int_handler)
            if leave is not None:
                leave(result, names)
            sys.exit(result)
