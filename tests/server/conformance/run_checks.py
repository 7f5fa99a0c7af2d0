"""Runs all checks against the server at RIDGE_PORT and prints a table; exits with 1 when one fails. Needs the packages openai and anthropic."""
import importlib
import os
import sys
import time
import traceback

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import harness  # noqa: E402

MODULES = ["openai_chat_checks", "openai_tool_checks", "openai_other_checks", "anthropic_checks", "other_checks"] if harness.ON_TINY else ["smollm2_checks"]


def main():
    for module in MODULES:
        importlib.import_module(module)
    only = sys.argv[1:]
    failures = []
    checks = [(name, f) for name, f in harness.CHECKS if not only or any(word in name for word in only)]
    for number, (name, function) in enumerate(checks, 1):
        start = time.monotonic()
        try:
            function()
            word = "ok"
        except Exception:  # noqa: BLE001
            word = "FAILED"
            failures.append((name, traceback.format_exc(limit=-3)))
        print(f"{number:3}  {word:6}  {time.monotonic() - start:6.2f} s  {name}", flush=True)
    for name, trace in failures:
        print(f"\n{name}\n{trace}")
    print(f"\n{len(checks)} checks, {len(failures)} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
