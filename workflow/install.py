"""Install with uv, which is several times faster than pip, using pip's configuration: index, proxy, certificates.

Arguments are those of `pip install`. pip itself installs if uv is missing or fails, or if pip's configuration has a
setting without a counterpart in uv.
"""

import ast
import os
import subprocess
import sys

VARIABLES = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "trusted-host": "UV_INSECURE_HOST",
    "keyring-provider": "UV_KEYRING_PROVIDER",
    "no-cache-dir": "UV_NO_CACHE",
    "default-timeout": "UV_HTTP_TIMEOUT",
    "timeout": "UV_HTTP_TIMEOUT",
    "retries": "UV_HTTP_RETRIES",
    "cert": "SSL_CERT_FILE",
    "client-cert": "SSL_CLIENT_CERT",
    "proxy": "ALL_PROXY",
    "constraint": "UV_CONSTRAINT",
}
"""pip's settings, and the environment variables that mean the same to uv."""
TRUE = ("1", "true", "yes", "on", "t", "y")
SWITCHES = {"no-index": "--no-index"}
IRRELEVANT = {"cache-dir", "disable-pip-version-check", "no-color", "no-input", "progress-bar", "root-user-action"}
"""Settings of pip that do not change what is installed."""


def pip_settings() -> dict[str, str]:
    """Return pip's settings from its files and from `PIP_…` variables, which win."""
    listed = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True)
    found = {}
    for section in ("global", "install", ":env:"):
        for name, value in (line.split("=", 1) for line in listed.stdout.splitlines()):
            if name.startswith(f"{section}."):
                found[name.removeprefix(f"{section}.")] = ast.literal_eval(value)
    return found


def uv_options(settings: dict[str, str], arguments: list[str]) -> tuple[list[str], dict[str, str]]:
    """Return the arguments and the environment with which uv installs what pip would."""
    # as pip: the best version of all indexes, not of the first that knows a name
    variables = {"UV_INDEX_STRATEGY": "unsafe-best-match", "UV_SYSTEM_CERTS": "1"}
    for name in VARIABLES.keys() & settings.keys():
        separator = "," if name == "find-links" else " "
        variables[VARIABLES[name]] = separator.join(settings[name].split())
    if "--require-hashes" in arguments:
        variables.pop("UV_CONSTRAINT", None)  # each version is given, and uv would ask constraints for hashes, too
    switches = [option for name, option in SWITCHES.items() if settings.get(name, "").lower() in TRUE]
    # compiled, as pip does: where Python writes no bytecode (PYTHONDONTWRITEBYTECODE), every start would compile anew
    words = ["pip", "install", "--quiet", "--compile-bytecode", "--python", sys.executable]
    return [*words, *switches, *arguments], variables


def main(arguments: list[str]) -> int:
    """Install with uv if possible, else with pip; return the exit status."""
    uv = os.path.join(os.path.dirname(sys.executable), "uv")
    settings = pip_settings()
    unknown = settings.keys() - VARIABLES.keys() - SWITCHES.keys() - IRRELEVANT
    if unknown:
        print(f"uv has no counterpart of pip's {', '.join(sorted(unknown))}; pip installs, which takes longer")
    elif os.path.exists(uv):
        options, variables = uv_options(settings, arguments)
        if subprocess.run([uv, *options], env=variables | os.environ, check=False).returncode == 0:
            return 0
        print("uv failed; pip installs, which takes longer", flush=True)
    return subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", *arguments], check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
