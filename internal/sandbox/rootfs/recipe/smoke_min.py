"""The check every image passes before it is published: Python runs as the sandbox user with the paths it will have."""
import ctypes
import json
import lzma
import os
import sqlite3
import ssl
import subprocess
import tempfile
import zlib

assert os.getuid() == 1000 and os.getgid() == 1000, "runs as another user"
assert os.environ["HOME"] == "/workspace", "HOME is not /workspace"
for folder in ("/workspace", "/files", "/skills", "/mnt/session", "/proc", "/dev", "/tmp", "/sys"):
    assert os.path.isdir(folder), f"no folder {folder}"
subprocess.run(["python", "--version"], check=True)
subprocess.run(["bash", "-c", "getent passwd sandbox && getent hosts localhost"], check=True)
with tempfile.TemporaryFile() as f:
    f.write(zlib.compress(lzma.compress(json.dumps({"a": ssl.OPENSSL_VERSION}).encode())))
assert sqlite3.connect(":memory:").execute("select 1").fetchone() == (1,)
ctypes.CDLL(None).getpid()
