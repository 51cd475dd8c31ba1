"""Build the library from its C++ sources, for `library` and for setup.py, which runs this file by itself.

The library holds `kernel.cpp` once per instruction set; `library.cpp` chooses. It links nothing but the C library, and
of that only functions that every version has, so it runs on older systems than the one that builds it.
"""

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCES = ("call.h", "simd.h", "philox.h", "kernel.cpp", "library.cpp", "build.py")
FLAGS = ("-std=c++17", "-O3", "-fPIC", "-fno-exceptions", "-fno-rtti", "-fno-math-errno", "-fvisibility=hidden")
X86_LEVELS = {
    "avx512": ("-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mavx2", "-mfma"),
    "avx2": ("-mavx2", "-mfma"),
    "baseline": (),
}


def levels() -> dict[str, tuple[str, ...]]:
    """Return the compiler's options for each instruction set of this architecture, as listed in library.cpp."""
    machine = platform.machine().lower()
    if machine in ("x86_64", "amd64"):
        return X86_LEVELS
    return {"neon" if machine in ("aarch64", "arm64") else "baseline": ()}


def find_compiler() -> str | None:
    """Return the path of a C++ compiler: $CXX, or the first on the PATH."""
    return next(filter(None, map(shutil.which, (os.environ.get("CXX", ""), "c++", "g++", "clang++"))), None)


def file_name() -> str:
    """Return the name of the library that belongs to these sources and this kind of system."""
    system = (sys.platform, platform.machine(), platform.libc_ver()[0])
    key = "\n".join([*system, *((HERE / name).read_text(encoding="utf-8") for name in SOURCES)])
    return f"window_attention-{hashlib.sha256(key.encode()).hexdigest()[:16]}.so"


def build(compiler: str, folder: Path) -> Path:
    """Compile the library into a folder and return its path; it appears there complete or not at all.

    Raises
    ------
    subprocess.CalledProcessError
        With the compiler's messages in `stderr`.
    OSError
    """
    with tempfile.TemporaryDirectory(prefix=".window_attention-", dir=folder.resolve()) as temporary:
        parts: dict[str, tuple[str, ...]] = {"library": ("library.cpp",)}
        parts |= {level: (f"-DLEVEL={level}", *flags, "kernel.cpp") for level, flags in levels().items()}
        objects = {name: str(Path(temporary, f"{name}.o")) for name in parts}
        commands = [[compiler, *FLAGS, *parts[name], "-c", "-o", objects[name]] for name in parts]
        running = [subprocess.Popen(command, cwd=HERE, stderr=subprocess.PIPE, text=True) for command in commands]
        errors = [process.communicate()[1] for process in running]
        for process, error in zip(running, errors, strict=True):
            if process.returncode:
                raise subprocess.CalledProcessError(process.returncode, process.args, stderr=error)
        library = Path(temporary, "library.so")
        link = [compiler, "-shared", "-Wl,--as-needed", *objects.values(), "-o", str(library)]
        if sys.platform == "darwin":
            link.remove("-Wl,--as-needed")
        subprocess.run(link, capture_output=True, text=True, check=True)
        os.replace(library, folder / file_name())
    return folder / file_name()
