"""The programs of base answer, and C compiles."""
import os
import subprocess

os.chdir("/workspace")
for words in ("git --version", "curl --version", "jq --version", "rg --version", "fd --version", "sqlite3 --version",
              "7z i", "zip --version", "unzip -v", "bc --version", "make --version", "pip --version", "tree --version",
              "file --version", "ps --version", "zstd --version"):
    subprocess.run(words.split(), check=True, stdout=subprocess.DEVNULL)
subprocess.run(["gcc", "-xc", "-", "-o", "/workspace/a.out"], input=b"int main(void){return 0;}\n", check=True)
subprocess.run(["/workspace/a.out"], check=True)
subprocess.run(["python3", "-m", "venv", "/workspace/venv"], check=True, stdout=subprocess.DEVNULL)
