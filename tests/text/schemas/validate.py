"""The documents that test_text makes for the 200 schemas, judged by the package jsonschema.

    python3 validate.py TEST_TEXT FOLDER

FOLDER: where the package's environment is kept. Exit code 77: the package cannot be had.
"""
import collections
import json
import os
import subprocess
import sys
import tempfile


def environment(folder):
    python = os.path.join(folder, "bin", "python")
    if subprocess.run([python, "-c", "import jsonschema"], capture_output=True).returncode == 0 if os.path.exists(python) else False:
        return python
    if subprocess.run([sys.executable, "-m", "venv", folder], capture_output=True).returncode != 0:
        return None
    installed = subprocess.run([python, "-m", "pip", "install", "--quiet", "jsonschema[format]==4.26.0"], capture_output=True, timeout=300)
    if installed.returncode != 0:
        installed = subprocess.run([python, "-m", "pip", "install", "--quiet", "jsonschema[format]"], capture_output=True, timeout=300)
    return python if installed.returncode == 0 else None


def validator_of(schema):
    """The draft that a schema is written for."""
    import jsonschema
    text = json.dumps(schema)
    if '"exclusiveMinimum": true' in text or '"exclusiveMaximum": true' in text:
        return jsonschema.Draft4Validator
    if '"additionalItems"' in text or '"items": [' in text:
        return jsonschema.Draft7Validator
    return jsonschema.Draft202012Validator


def errors_of(schema, text):
    """What is wrong with a document, or None."""
    try:
        document = json.loads(text)
    except ValueError as error:
        return f"not JSON: {error}"
    validator = validator_of(schema)
    for error in validator(schema, format_checker=validator.FORMAT_CHECKER).iter_errors(document):
        return error.message
    return None


def judge(path):
    bad = collections.Counter()
    n = 0
    with open(path) as lines:
        for line in lines:
            entry = json.loads(line)
            error = errors_of(entry["schema"], entry["text"])
            n += 1
            if error:
                bad[entry["name"]] += 1
                print(f"{entry['name']}: {entry['text'][:200]}: {error[:200]}")
    print(f"{n} documents, {sum(bad.values())} of them bad")
    return 1 if bad or n < 200 else 0


def main():
    if len(sys.argv) == 2:
        return judge(sys.argv[1])
    program, folder = sys.argv[1:3]
    python = environment(folder)
    if python is None:
        print("skipped: the package jsonschema cannot be installed here")
        return 77
    with tempfile.TemporaryDirectory() as scratch:
        path = os.path.join(scratch, "documents.jsonl")
        subprocess.run([program, "--gtest_filter=Grammar.EveryDocumentOfTwoHundredSchemasFits"], check=True, stdout=subprocess.DEVNULL, env={**os.environ, "RIDGE_DOCUMENTS": path})
        if not os.path.exists(path):
            print("skipped: built without structured output")
            return 77
        return subprocess.run([python, os.path.abspath(__file__), path]).returncode


if __name__ == "__main__":
    sys.exit(main())
