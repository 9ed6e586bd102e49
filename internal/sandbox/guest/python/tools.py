"""The functions of a cell that the host answers. See the package comment of python.go; cell.py stands below this text."""


def _airlock_tools(control, inbox, packed):
    """What offers tools to a cell and carries its calls: begin(offer, cell, names)
    before it and end(names) after it, and trim(error), which takes the frames of
    this text out of a traceback."""
    import json
    import os
    import signal
    import socket
    import struct
    import types
    from _thread import get_ident

    FILE = "<tool>"
    # However busy a cell keeps its event loop, its calls go out after this many seconds.
    PATIENCE = 0.5

    class ToolError(RuntimeError):
        """A tool could not be called, or its answer is an error."""

    ToolError.__module__, ToolError.__qualname__ = "__main__", "ToolError"

    offer = {}  # limits of the running cell
    offered = {}  # exact name -> function; empty between cells
    shadows = []  # of what was put into the cell's names: name, value, and what was there before
    waiting = {}  # number -> future of a call without an answer
    queue = []  # number, name, input, future of a call that is not sent
    out = set()  # numbers of the group that is sent
    parts = {}  # number -> what has come of an answer
    timers = {}  # loop -> its quiet timer
    listening = []  # loops that read the control stream
    number = made = cell = 0
    since = None  # when the first call of the queue was made
    busy = False  # a group is out
    home = ()  # process and thread that may call
    signals = ()  # all that can be blocked

    def undisturbed(work):
        """No signal handler of the cell may end this half way: the stream would be
        out of step."""
        before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        try:
            signal.pthread_sigmask(signal.SIG_BLOCK, signals)
            return work()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def encode(name, args, kwargs):
        if len(args) + bool(kwargs) > 1 or args and not isinstance(args[0], dict):
            raise TypeError("%s takes one dict, or keyword arguments" % name)
        text = json.dumps(args[0] if args else kwargs, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return text.encode()

    def enter(name, args, kwargs):
        """Check a call and queue it. Returns the future of its answer."""
        nonlocal number, made, since
        if os.getpid() != home[0]:
            raise ToolError("%s cannot be called from another process than that of the cell" % name)
        if get_ident() != home[1]:
            raise ToolError("%s cannot be called from another thread than that of the cell" % name)
        if name not in offered:
            raise ToolError("%s cannot be called: its cell has ended, and this one has no such tool" % name)
        body = encode(name, args, kwargs)
        if len(body) > offer["input"]:
            raise ToolError("the input of %s has %d bytes; the limit is %d" % (name, len(body), offer["input"]))
        if made >= offer["calls"]:
            raise ToolError("a cell may make %d calls of tools, and this one has" % offer["calls"])
        if len(waiting) >= offer["pending"]:
            raise ToolError("%d calls of tools may wait at one time, and as many do" % offer["pending"])
        if sum(len(call[2]) for call in queue) + len(body) > offer["inputs"]:
            raise ToolError("the inputs of all calls that wait have over %d bytes together" % offer["inputs"])
        import asyncio

        loop = asyncio.get_running_loop()
        future = loop.create_future()
        if loop not in listening:
            loop.add_reader(control, undisturbed, read)
            listening.append(loop)
        number += 1
        made += 1
        key = number
        waiting[key] = future
        future.add_done_callback(lambda _: waiting.pop(key, None))
        if since is None:
            since = loop.time()
        queue.append((key, name, body, future))
        arm(loop)
        return future

    def arm(loop):
        if not busy:
            if loop in timers:
                timers[loop].cancel()
            timers[loop] = loop.call_later(offer["quiet"], quiet, loop)

    def quiet(loop):
        timers.pop(loop, None)
        if busy or not queue:
            return
        if getattr(loop, "_ready", ()) and loop.time() - since < PATIENCE:
            arm(loop)
        else:
            undisturbed(send)

    def send():
        nonlocal since, busy
        group = [call for call in queue if not call[3].done()]
        queue.clear()
        since = None
        if not group:
            return
        busy = True
        out.update(call[0] for call in group)
        try:
            said = [packed(body, t="call", cell=cell, call=key, name=name) for key, name, body, _ in group]
            control.sendall(b"".join(said) + packed(t="wait", cell=cell))
        except OSError:  # the cell has closed the stream
            answered("the call could not be sent")

    def read():
        try:
            part = control.recv(1 << 20, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        if not part:
            os._exit(0)  # the guest is gone
        inbox.extend(part)
        while len(inbox) >= 4:
            end = 4 + struct.unpack_from(">I", inbox)[0]
            if len(inbox) < end:
                return
            head, _, body = bytes(inbox[4:end]).partition(b"\n")
            del inbox[:end]
            hear(json.loads(head), body)

    def answered(otherwise):
        """The group is no longer out; a call without an answer gets an error."""
        nonlocal busy
        for key in list(out):
            settle(key, otherwise, "ToolError")
        out.clear()
        parts.clear()
        busy = False
        for call in queue:
            loop = call[3].get_loop()
            if not loop.is_closed():
                arm(loop)

    def hear(head, body):
        if head["t"] != "answer":
            return
        key = head.get("call")
        if key in out:
            parts.setdefault(key, bytearray()).extend(body)
            if not head.get("more"):
                out.discard(key)
                settle(key, parts.pop(key).decode("utf-8", "replace"), head.get("raise"))
        if head.get("last"):
            answered("no answer has come to this call")

    def settle(key, text, error=None):
        future = waiting.pop(key, None)
        if future is None or future.done() or future.get_loop().is_closed():
            return
        if not error:
            future.set_result(text)
        elif error == "TimeoutError":
            future.set_exception(TimeoutError(text))
        else:
            future.set_exception(ToolError(text))

    def function(name, identifier):
        async def tool(*args, **kwargs):
            return await enter(name, args, kwargs)

        tool.__code__ = tool.__code__.replace(co_filename=FILE, co_name=identifier)
        tool.__name__ = tool.__qualname__ = identifier
        tool.__module__ = "__main__"
        tool.__doc__ = "Call %s with one dict, or keyword arguments, and await its answer, a string." % name
        return tool

    def put(names, name, value):
        shadows.append((name, value, name in names, names.get(name)))
        names[name] = value

    def begin(what, at, names):
        from keyword import iskeyword

        nonlocal cell, made, home, signals
        signals = signals or signal.valid_signals()
        offer.update(what)
        cell, made, home = at, 0, (os.getpid(), get_ident())
        for name in what["names"]:
            identifier = name.replace("-", "_")
            offered[name] = function(name, identifier)
            # The names that Python itself goes by are only in tools.
            if identifier.isidentifier() and not iskeyword(identifier) and identifier[:2] != "__" and identifier != "_":
                put(names, identifier, offered[name])
        # These two are no names that the caller has chosen: a cell keeps its own. The
        # exception stays, for what an earlier cell has defined may handle it.
        if "tools" not in names:
            put(names, "tools", types.MappingProxyType(dict(offered)))
        names.setdefault("ToolError", ToolError)

    def end(names):
        """Nothing of the cell is left to be answered or called, and its names are
        what they were unless it has given them another value."""
        nonlocal since, busy
        offered.clear()
        for timer in timers.values():
            timer.cancel()
        for loop in listening:
            if not loop.is_closed():
                loop.remove_reader(control)
        for key, future in list(waiting.items()):
            settle(key, "the cell ended before the answer came", "ToolError")
            if future.done() and not future.cancelled():
                future.exception()  # nobody may be left to look at it
        for state in timers, listening, waiting, queue, out, parts:
            state.clear()
        since, busy = None, False
        for name, value, was, before in reversed(shadows):
            if names.get(name) is value:
                if was:
                    names[name] = before
                else:
                    del names[name]
        shadows.clear()

    def trim(error, seen=()):
        while error is not None and id(error) not in seen:
            seen = (*seen, id(error))
            tb = error.__traceback__
            while tb is not None and tb.tb_next is not None:
                if tb.tb_next.tb_frame.f_code.co_filename == FILE:
                    tb.tb_next = None
                tb = tb.tb_next
            for inner in getattr(error, "exceptions", None) or ():
                trim(inner, seen)
            if error.__cause__ is not None:
                trim(error.__cause__, seen)
            error = error.__context__

    return begin, end, trim
