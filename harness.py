"""Cases, tasks, systems, one call, recordings, grading and run records.

    python3 harness.py run --recording R --out RUN
    python3 harness.py run --recording R --out RUN --task mine.json
    python3 harness.py check mine.json

grades a recording (what became of every planned trial of every case) with the
checks of the task, and writes a run record: a manifest, then a row a trial
with its verdict, which is pass, fail or incomplete. Nothing in it depends on
the machine, the time or the Python that made it.

check names what makes results doubtful: words that planned cases share with
held-out ones, with the prompt or with examples, and inputs that stand twice.
It exits with 1 where it finds any.
"""

import signal
import sys

if sys.version_info < (3, 11):      # an older Python must be able to read this far: no newer syntax in this file
    sys.stderr.write("error: Python 3.11 or later is needed, this is {}.{}.{}: run {} with a newer one, such as "
                     "python3.11\n".format(*sys.version_info[:3], sys.argv[0] or "it"))
    sys.exit(2)
if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)    # an interrupt during the imports below ends quietly

import argparse
import atexit
import bisect
import codecs
import contextlib
import copy
import csv
import difflib
import functools
import errno
import hashlib
import importlib
import inspect
import io
import itertools
import json
import keyword
import math
import operator
import os
import platform
import re
import shlex
import statistics
import threading
import time
import traceback
import warnings
import zlib
from array import array
from collections import Counter
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from pathlib import Path

try:
    import fcntl
except ImportError:     # Windows
    fcntl = None

ON_WINDOWS = os.name == "nt"
PYTHON, REMOVE = ("python", "del") if ON_WINDOWS else ("python3", "rm")     # as people call them there
HARNESS_VERSION = "1"
HERE = Path(__file__).resolve().parent
DEFAULT_CASES = HERE / "cases.json"
SPLITS = ("development", "held-out")
IDENTITY = ("name", "version", "mode", "model", "prompt", "tools")
EXTRA_IDENTITY = ("options", "schema")
PLAN_KEYS = ("harness_version", "system", "case_set_sha256", "splits", "trials")
CASE_KEYS = ("id", "class", "split", "input", "expect", "failure_criteria", "expect_rejection", "files", "hidden", "test")
# Python's own json reader gives up near 1,000 levels, at a depth that differs between versions.
MAX_DEPTH = 100
# More is a slip of the finger, and its plan alone would fill the memory.
MAX_TRIALS = 100_000
# How a log of trials begins: the one kind of file here that cannot be made again, so no writer replaces one.
IRREPLACEABLE = b'{"bench_version"'
# What Windows takes in no file's name, or for something else.
NOT_EVERYWHERE = re.compile(r'[\\:*?"<>|]|[. ](/|$)|(^|/)(con|prn|aux|nul|com[0-9]|lpt[0-9])(\.[^/]*)?(/|$)', re.IGNORECASE)
VERDICTS = ("pass", "fail", "incomplete")
ENDS = (*VERDICTS, "not run")
NOT_RUN = ("incomplete", None, "NotRun: planned, but not in the log")
REASON_LETTERS = 200        # of one reason in the memory
# The shapes of a run record, which somebody may have edited by hand.
SHAPES = {str: "text", int: "a whole number", list: "a list", dict: "an object"}
NAMED = {"name": str, "sha256": str}
MANIFEST = {"harness_version": str, "task": dict, "case_set": dict, "system": dict, "splits": list, "trials": int,
            "recording_sha256": str}
ROW = {"case_id": str, "class": str, "split": str, "trial": int, "verdict": str, "metadata": dict}
# What a trial's metadata may count or time: numbers up to the most that is believed.
AMOUNTS = ("recorded_latency_s", "prompt_eval_count", "eval_count", "load_duration_s", "eval_duration_s",
           "total_duration_s")
MOST_AMOUNT, NUMBERS = 1e15, {int, float}
# When cases are alike: words in a row, marks of a text's sketch, pairs that are compared at most, share of equal words, lines told.
RUN_WORDS, SKETCH_MARKS, MOST_COMPARED, ALIKE, MOST_NAMED = 8, 32, 2000, 0.9, 20
MOST_TOKENS = 512           # of a reply, whose log-probabilities are kept
LEAST_APART = 10            # passed and failed trials, of an AUC
UNLIKELY, SURE = math.log(0.01), 0.9    # a token that a schema forced; the chance of the same reply once more
REST = 1e-4                 # of a distribution: no more than what rounding leaves
LEFT_OUT = "left_out"       # where metadata keeps what was to be one and is none
# What must be the same for all trials of a run, else it is pointed out.
RUNTIMES = {"server_version": "server version", "workers": "number of workers", "temperature": "temperature",
            "reloaded": "model loaded during the trial", "digest": "model digest", "host": "server"}
# What a report without inputs, outputs and reasons keeps of a trial's metadata, and what stands for the rest.
UNREDACTED = {*AMOUNTS, *RUNTIMES, "seed", "done_reason", "tries", "after_prime"} - {"host"}
REDACTED = "(redacted)"
ERROR_NAME = re.compile(r"CheckError: check .{1,80}? (raised \w+|returned)|[^:]*")
# What a difference between what is claimed and what the trials say is called, by its JSON path.
FINDINGS = {
    "UNSIGNED": "", "MALFORMED": "",
    "OTHER_VERSION": r"(report_version|harness|manifest\.harness_version)\b.*",
    "PLAN_DIVERGED": r"(proof\.mode|manifest\.(?!recording_sha256)|task\b|case_set\b|systems\[\d+\]\.(system|provenance|trials_per_case|label)\b).*",
    "MISSING_TRIAL": r"results\[\d+\](\.(case_id|trial))?|systems\[\d+\]\.(per_case(\.[\w-]+|\[.*\])|(per_case.*\.)?not_run)",
    "HASH_MISMATCH": r"(sources|outputs_sha256)\b.*|(systems\[\d+\]|manifest)\.recording_sha256|results\[\d+\]\.(output|metadata)\b.*|proof\b.*",
    "FABRICATED_VERDICT": r"results\[\d+\]\..*",
    "FABRICATED_AGGREGATE": r".*",
}
MOST_TOLD = 5       # findings of a kind
NAMESPACE = "report@repeated-trials"      # no signature for another purpose counts
SIGNATURE = "-----BEGIN SSH SIGNATURE-----"
SIGN_S = 120        # for a passphrase, or a touch of a key
Z = 1.959964        # the normal distribution's 97.5 % quantile
T_QUANTILES = (12.7062, 4.3027, 3.1824, 2.7764)     # Student's, for 1 to 4 degrees of freedom
FEW_K = (1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)
MOST_WALKED = 1 << 27       # steps of a test that counts every sum, in bits: some 10 ms
MOST_PLANNED = 100_000      # trials or cases: of a plan that needs more it is said that no number does
ABSENT = object()
# How a file system says that it has no locks or no sync (NFS, Lustre, FUSE, network shares).
NOT_OFFERED = {errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, getattr(errno, "ENOTSUP", errno.EOPNOTSUPP), errno.EINVAL}
# How a stream says that nobody reads it any more: a closed pipe (on Windows too), a terminal that is gone.
READER_LEFT = {errno.EPIPE, errno.EINVAL, errno.EIO}
# What must not reach a terminal or hide in one: controls, direction marks, separators, characters
# without width, lone surrogates.
UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u2064"
                         "\u2066-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]")


# What a message may hold: {input}, or {input.FIELD} of an input that is an object.
PLACEHOLDER = re.compile(r"\{input(?:\.([^{}]+))?\}")


class CaseError(ValueError):
    """A case file with faults: the message lists all of them, one a line."""


class RunError(ValueError):
    """Something that cannot be planned, read, graded or written; the message names it and the mend."""


class UsageError(RunError):
    """A wrong value of an option: exit status 2."""


class Rejection(ValueError):
    """Raised by a system that refuses an input; the message says why."""


class OutputError(ValueError):
    """An answer that JSON cannot hold exactly."""


class SystemDown(RuntimeError):
    """No trial can be run, which is no trial's result; may_return says whether waiting can mend it."""
    may_return = False

    def __init__(self, message: str, may_return: bool = False):
        super().__init__(message)
        self.may_return = may_return


@dataclass(frozen=True)
class Answer:
    """What a system returns: an output and what is known of how it came about, both as JSON values."""
    output: object
    metadata: dict = field(default_factory=dict)


# Text, JSON and files

def printable(text: str) -> str:
    """The text with what a terminal would obey escaped: "a\\x1b[2J" → "a\\\\x1b[2J"."""
    return UNPRINTABLE.sub(lambda found: found.group().encode("unicode_escape").decode("ascii"), text)


def nearest(name: str, names) -> str:
    """A hint for a misspelt name: '; did you mean "bayes"?', or "" when nothing is close."""
    close = difflib.get_close_matches(str(name), [str(known) for known in names], n=3, cutoff=0.6)
    return f"; did you mean {' or '.join(json.dumps(match) for match in close)}?" if close else ""


# Made once: what json.dumps makes for each call costs as much as a short row.
CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)


def canonical(value) -> str:
    """A JSON value as one line of ASCII, keys sorted: equal values give equal text."""
    return CANONICAL.encode(value)


def sha256(text: str) -> str:
    """The sha256 of a text's UTF-8, as 64 hex digits."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def refuse_constant(name):
    raise ValueError(f"{name} is not JSON")


def unique_keys(pairs):
    """An object's pairs as a dict; ValueError when a key stands twice, since one of them would be lost."""
    made = dict(pairs)
    if len(made) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {next(key for key in keys if keys.count(key) > 1)!r} stands twice in one object")
    return made


def finite_float(text):
    """A number of JSON as a float; ValueError for 1e999, which no float can hold."""
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text} is out of a number's range")
    return number


STRICT = json.JSONDecoder(parse_constant=refuse_constant, parse_float=finite_float, object_pairs_hook=unique_keys)
# For what a server says of thousands of tokens, in two thirds of the time: of a repeated key the last value counts.
QUICK = json.JSONDecoder(parse_constant=refuse_constant)


def parse_json(text: str, decoder=STRICT):
    """The value of a JSON text; ValueError for what is none: NaN and absurd depth too, and if STRICT 1e999 and repeated keys."""
    try:
        value, end = decoder.raw_decode(text) if text.startswith("{") else (None, -1)     # the usual row, in less time
        return value if end == len(text) else decoder.decode(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def own_file(path) -> bytes:
    """A file of the tool, which may lie in a zip archive that Python runs."""
    # Named as the loader names it: a link, or a short name of Windows, may lead here.
    return __loader__.get_data(os.path.join(os.path.dirname(__file__), os.path.basename(path)))


def read_text(path) -> str:
    """The text of a UTF-8 file without its byte-order mark; RunError when it is no UTF-8."""
    try:
        data = own_file(path) if path == DEFAULT_CASES else Path(path).read_bytes()
        if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            raise RunError(f"{path}: this is UTF-16 text: save it as UTF-8")
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise RunError(f"{path}: not UTF-8 text: byte {error.start} is 0x{error.object[error.start]:02x}") from None


def place_of_fault(text: str) -> int:
    """Where a text that is JSON in form has what is refused all the same: a key that stands twice, NaN, 1e999."""
    keys, number, colon = [set()], r"-?(?:NaN|Infinity|[0-9][0-9.eE+-]*)", re.compile(r"\s*:")
    for found in re.finditer(r'"(?:[^"\\]|\\.)*"|[{}\[\]]|' + number, text):
        token = found.group()
        if token in "{[":
            keys.append(set())
        elif token in "}]":
            keys.pop()
        elif re.match(number, token):
            if not math.isfinite(float(token)):
                return found.start()
        elif colon.match(text, found.end()):
            if json.loads(token) in keys[-1]:
                return found.start()
            keys[-1].add(json.loads(token))
    return 0


def json_fault(text: str, error) -> tuple:
    """(what a text has that JSON has not, where): the usual slips of the hand by name, else in Python's words."""
    if not isinstance(error, json.JSONDecodeError):
        return str(error), 0 if isinstance(error.__context__, RecursionError) else place_of_fault(text)
    place = error.pos + len(text[error.pos:]) - len(text[error.pos:].lstrip())
    rest, before, said = text[place:], text[:place].rstrip(), error.msg
    closing = rest[:1] == "," and rest[1:].lstrip()[:1] or before[-1:] == "," and rest[:1]
    word = re.match(r"\w*", rest)[0]
    if closing and closing in "}]":
        return f"a comma stands before the closing {closing}: leave it out", place if rest[:1] == "," else len(before) - 1
    if rest[:1] in tuple("'“”„‘’`"):
        return f"a quotation mark {rest[0]} where JSON has double quotes: write \"", place
    if re.match("//|/\\*|#", rest):
        return "a comment, which JSON has not: leave it out", place
    if not rest:
        return "it ends too early: " + ('a closing }, ] or " is missing, or the file is cut' if before else "it is empty"), len(before)
    known = {"true": "true", "false": "false", "none": "null", "null": "null"}.get(word.lower())
    if known and said == "Expecting value":
        return f"{word} is written {known} in JSON", place
    hints = {"Expecting ',' delimiter": "a comma is missing before this", "Expecting ':' delimiter": "a colon is missing before this",
             "Expecting property name": f'a name without quotes: write "{word}"' if word else "a name in double quotes is missing before this",
             "Unterminated string": 'a text without its closing "', "Extra data": "it goes on after its end: one value a file, one a line in .jsonl",
             "Expecting value": "no value of JSON; a text stands in double quotes",
             "Invalid control character": "a text with a line break or a tab in it: write \\n or \\t",
             "Invalid \\escape": "a backslash in a text: write \\\\"}
    return next((hint for start, hint in hints.items() if said.startswith(start)), said), error.pos if "control" in said else place


def parsed(text: str, path, first_line: int = 1):
    """The value of a file's JSON text; RunError names the file, line, column and fault, and shows the line."""
    try:
        return parse_json(text)
    except ValueError as error:
        fault, place = json_fault(text, error)
    start = text.rfind("\n", 0, place) + 1
    shown = text[max(start, place - 40):].split("\n")[0][:80].strip()
    raise RunError(f"{path}: not JSON: line {text.count(chr(10), 0, place) + first_line}, column {place - start + 1}: {fault}: {shown}")


def read_json(path):
    """The value that a JSON file holds; RunError names the file and the place."""
    return parsed(read_text(path), path)


def is_irreplaceable(path) -> bool:
    """Whether a file holds a log of trials."""
    if not os.path.isfile(path):
        return False
    with open(path, "rb") as file:
        return file.read(len(IRREPLACEABLE)) == IRREPLACEABLE


def sync(file_descriptor) -> bool:
    """Force what was written onto the disk itself; False where the file system cannot do it."""
    if hasattr(fcntl, "F_FULLFSYNC"):       # macOS needs more than fsync for that
        with contextlib.suppress(OSError):      # a file system without it
            fcntl.fcntl(file_descriptor, fcntl.F_FULLFSYNC)
            return True
    try:
        os.fsync(file_descriptor)
    except OSError as error:
        if error.errno not in NOT_OFFERED:
            raise
        return False
    return True


def rename_over(temporary, target) -> None:
    """Give a closed file the target's name. Windows refuses that while another program, a virus scanner say, reads either."""
    for pause_s in (0.05, 0.1, 0.2, 0.4) if ON_WINDOWS else ():
        try:
            return os.replace(temporary, target)
        except PermissionError:
            time.sleep(pause_s)
    os.replace(temporary, target)


@contextlib.contextmanager
def writing(path):
    """A file to write a text into, put in place after the block, whole or not at all; a log of trials is never replaced."""
    target = Path(os.path.realpath(path))
    if is_irreplaceable(target):
        raise RunError(f"{path}: this is a log of trials, which nothing replaces: give another name")
    if target.exists() and not target.is_file() and not target.is_dir():
        with open(target, "w", encoding="utf-8", newline="\n") as file:     # a pipe or a terminal cannot be replaced
            yield file
        return
    temporary = target.with_name(f".{os.urandom(6).hex()}.tmp")
    file = open(temporary, "x", encoding="utf-8", newline="\n")
    try:
        with file:      # Windows neither renames nor removes an open file
            yield file
            file.flush()
            sync(file.fileno())
        rename_over(temporary, target)
    except BaseException:
        temporary.unlink()
        raise


@contextlib.contextmanager
def unwritable(path):
    """A block in which an OSError becomes the RunError that names the file."""
    try:
        yield
    except OSError as error:
        raise RunError(f"{path}: cannot be written: {error.strerror}") from None


def write_texts(texts) -> None:
    """Put the text of each {path: a text or its pieces} into its file, a piece of each in turn: all of them or, after an error, none."""
    with contextlib.ExitStack() as stack:
        files, pieces = [], [[text] if isinstance(text, str) else text for text in texts.values()]
        for path in texts:
            stack.enter_context(unwritable(path))
            files.append(stack.enter_context(writing(path)))
        for turn in itertools.zip_longest(*pieces, fillvalue=""):
            for path, file, piece in zip(texts, files, turn):
                with unwritable(path):
                    file.write(piece)


def write(path, value) -> None:
    """Put a JSON value into a file, whole or not at all, its key order kept, with a final newline."""
    write_texts({path: json.dumps(value, indent=2, allow_nan=False) + "\n"})


# Tasks as modules

def raised(error) -> str:
    """An error of somebody's own code with where it stands: "KeyError: 'x' (mine.py, line 12)"."""
    told, ours = f"{type(error).__name__}: {error}", (str(HERE / "harness.py"), str(HERE / "bench.py"), os.path.dirname(os.__file__), "<")
    places = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(ours)]
    return f"{told} ({os.path.basename(places[-1].filename)}, line {places[-1].lineno})" if places else told


def import_named(name: str, what: str):
    """The module of that name, from the tool's own folder or the current one; RunError with near names."""
    for folder in (str(HERE), os.getcwd()):
        if folder not in sys.path:
            sys.path.append(folder)
    if not all(part.isidentifier() for part in name.split(".")):
        raise RunError(f"{what} {json.dumps(name)} is not a module's name: give it without folder and .py")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if not name.startswith(str(error.name)):
            raise RunError(f"{what} {name} imports {error.name}, which is not there") from error
        known = {path.stem for folder in (HERE, Path.cwd()) for path in folder.glob("*.py")}
        raise RunError(f"no {what} module {name}.py here or beside the tool{nearest(name, sorted(known))}") from None
    except (Exception, SystemExit) as error:        # the module's own code runs here
        raise RunError(f"{what} {name} cannot be imported: {raised(error)}") from error


# Tasks as data: values and how they are compared

CHECKS_VERSION = "1"        # of the meaning of the checks below: a task's hash stands for what grades
SEARCH_S, TAME_STEPS = 2, 4e6       # a search that may take more steps runs in a process that can be stopped
MOST_DEFINITION = 1_000_000
NUMBER = re.compile(r"[+-]?(?:[0-9]+|[0-9]{1,3}(?:,[0-9]{3})+)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,3})?")
KINDS = {"object": (dict, "an object"), "array": (list, "a list"), "string": (str, "a text"),
         "number": ((int, float), "a number"), "integer": ((int, float), "a whole number"),
         "boolean": (bool, "true or false"), "null": (type(None), "null")}
ANY, SIZED, TEXT, NUMERIC = tuple(KINDS), ("string", "array"), ("string",), ("number", "integer")
COMPARE = {"exact": ('"exact"', ANY), "text": ('"text"', SIZED), "set": ('"set"', ("array",)),
           "within": ('{"within": N}', NUMERIC), "within_percent": ('{"within_percent": N}', NUMERIC)}
CRITERION = '{"field": NAME, "is": CHECK, "why": TEXT}; "equals": V for "is", and no "field" for the whole reply'
CHECK_EXAMPLE = ' such as {"contains": "x"}'
# Shapes are JSON schemas themselves.
TEXT_REPLY = {"type": ["string", "number"]}     # a text, which is read as a number where one is expected
OBJECT, LIST, STRING = {"type": "object"}, {"type": "array"}, {"type": "string"}
SCHEMA_SHAPE = {"type": "object", "properties": {
    "type": {"type": ["string", "array"]}, "enum": LIST, "const": {}, "properties": OBJECT, "items": OBJECT,
    "required": {"type": "array", "items": STRING}, "additionalProperties": {"type": ["boolean", "object"]}}}
SAID_ASIDE = {"title", "description", "default", "examples", "$schema", "$id", "$comment", "deprecated"}
MESSAGE_SHAPE = {"type": "object", "properties": {"role": {"enum": ["system", "user", "assistant"]}, "content": STRING},
                 "required": ["role", "content"], "additionalProperties": False}
CRITERION_SHAPE = {"type": "object", "properties": {"field": STRING, "is": {}, "equals": {}, "why": STRING},
                   "required": ["why"], "additionalProperties": False}
TASK_SHAPE = {"name": {}, "prompt": STRING, "prompt_file": STRING, "system_prompt": STRING,
              "messages": {"type": "array", "items": MESSAGE_SHAPE, "examples": [{"role": "user", "content": "{input}"}]},
              "schema": {}, "options": {"type": "object", "examples": {"temperature": 0.2}}, "extract": {}, "compare": {},
              "think": {"type": ["string", "boolean"], "examples": "off"}, "cases": {},
              "test": STRING}
# Of a task whose cases are tested: what a test came to, where the task asks for no fields beside that.
TEST_SCHEMA = {"type": "object", "properties": {"exit": {"type": "integer"}, "output": {"type": "string"}},
               "required": ["exit", "output"], "additionalProperties": False}


class Reply(str):
    """A text reply, or what was extracted of it: where a number is expected it is read as one."""


def is_number(value) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def is_kind(value, kind: str) -> bool:
    """Whether a JSON value is of a schema's type; true is no number, 2.0 is a whole one."""
    fits = isinstance(value, KINDS[kind][0]) and isinstance(value, bool) == (kind == "boolean")
    return fits and (kind != "integer" or value == int(value))


def each(value) -> list:
    return value if isinstance(value, list) else [value]


def brief(value) -> str:
    """A value as JSON writes it, cut to what a reason has room for."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 120 else text[:119] + "…"


def listed(texts, last="or") -> str:
    """["a", "b", "c"] → "a, b or c"."""
    texts = list(texts)
    return f" {last} ".join([", ".join(texts[:-1]), texts[-1]] if texts[1:] else texts)


def plain(value):
    """The value with 1.0 written as 1, so that equal JSON has equal text."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def folded(value):
    """The value with each text's case, outer punctuation and runs of white space put aside: " Ab  C. " → "ab c"."""
    if isinstance(value, list):
        return [folded(item) for item in value]
    if not isinstance(value, str):
        return value
    found = re.search(r"[^\W_](?:.*[^\W_])?", " ".join(value.casefold().split()))      # in linear time, unlike [\W_]+$
    return found[0] if found else ""


def number_of(value):
    """The number that a value is, or that a text reply says as a whole ("1,234.5" → 1234.5), else None."""
    if isinstance(value, Reply) and len(value) < 300 and NUMBER.fullmatch(value):
        value = float(value.replace(",", ""))
    return value if is_number(value) and abs(value) != math.inf else None


def equal(value, wanted, how="exact") -> bool:
    """Whether a value is what a literal says, compared as how says."""
    if isinstance(value, str) and isinstance(wanted, str) and how != "text":
        return value == wanted
    if is_number(wanted):
        value = number_of(value)
        if isinstance(how, dict) and value is not None:
            (kind, size), = how.items()
            value, wanted, size = (Fraction(str(number)) for number in (value, wanted, size))
            return abs(value - wanted) <= (size if kind == "within" else abs(wanted) * size / 100)
    if how == "text":
        value, wanted = folded(value), folded(wanted)
    if how == "set" and isinstance(value, list) and isinstance(wanted, list):
        value, wanted = (sorted(canonical(plain(item)) for item in items) for items in (value, wanted))
    return canonical(plain(value)) == canonical(plain(wanted))


# Searching with a deadline

def is_tame(pattern: str, length: int) -> bool:
    """Whether a search in a text of that length cannot take long, by the repetitions and choices that are tried in turn."""
    if re.search(r"\)[*+{]|\(\?[a-zA-Z-]*x", pattern):     # a repeated group, or white space that may hide one
        return False
    repeated, chosen = len(re.findall(r"(?<!\()[*+{]", pattern)), len(re.findall(r"(?<!\()\?|\|", pattern))
    return repeated + chosen < 22 and (length + 1) ** (1 + repeated) << chosen <= TAME_STEPS


class Searcher:
    """A process of this Python that searches with a deadline, since a thread that searches cannot be stopped.

    It ends with its standard input, so that it outlives whoever started it by no more than one search."""
    CODE = """
import faulthandler, json, os, re, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
nowhere = open(os.devnull, "w")
def watch(seconds):
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    elif seconds:
        faulthandler.dump_traceback_later(seconds, exit=True, file=nowhere)
    else:
        faulthandler.cancel_dump_traceback_later()
for line in sys.stdin:
    pattern, text, last, seconds = json.loads(line)
    watch(seconds)
    answer = None
    for found in re.finditer(pattern, text):
        answer = [found[found.re.groups and last]]
        if not last:
            break
    watch(0)
    print(json.dumps(answer), flush=True)
"""

    def __init__(self):
        self.lock, self.process, self.owner, self.stopped = threading.Lock(), None, os.getpid(), Counter()
        atexit.register(self.end)

    def end(self) -> None:
        process, self.process = self.process, None
        if process and self.owner == os.getpid():       # a forked child has a copy, which is not its own
            process.kill()
            process.communicate()

    def asked(self, question) -> str:
        """The line of the answer; "" when the search was stopped."""
        if self.process is None or self.process.poll() is not None:
            import subprocess       # which only a doubtful expression needs
            self.end()
            self.process = subprocess.Popen([sys.executable, "-I", "-S", "-c", self.CODE], text=True, stdin=subprocess.PIPE,
                                            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline()

    def search(self, pattern, text, last, seconds):
        """[text] of the first match, or of the group of the last one; None where there is none; TimeoutError.

        What was stopped three times is given a tenth of the time, so that a long report of such trials ends."""
        with self.lock:
            answer = ""
            try:
                answer = self.asked([pattern, text, last, seconds / 10 if self.stopped[pattern] > 2 else seconds])
            finally:
                if not answer:
                    self.end()
                    self.stopped[pattern] += 1
        if not answer:
            raise TimeoutError(f"the regular expression {brief(pattern)} runs away on this reply and was stopped: make it simpler")
        return json.loads(answer)


@functools.lru_cache(None)
def searcher(process_id) -> Searcher:
    """The searcher of a process: a forked one has one of its own."""
    return Searcher()


@functools.lru_cache(8)     # a reply is asked the same by its check and by the words of the check
def searched(pattern: str, text: str, last: bool = False):
    """[text] of the first match of a regular expression, or of the group of the last one; None where there is none.

    One that runs away is stopped: TimeoutError."""
    if not is_tame(pattern, len(text)):
        return searcher(os.getpid()).search(pattern, text, last, SEARCH_S)
    answer = None
    for found in re.finditer(pattern, text):
        answer = [found[found.re.groups and last]]
        if not last:
            break
    return answer


# Checks: what an object says instead of a literal

def has_item(value, item) -> bool:
    """Whether a text has a text in it, case aside, or a list an item."""
    if isinstance(value, str) and isinstance(item, str):
        return item.casefold() in value.casefold()
    return isinstance(value, list) and any(equal(own, item) for own in value)


def is_found(value, pattern) -> bool:
    return isinstance(value, str) and searched(pattern, value) is not None


def reaches(number, bound, compared) -> bool:
    """Whether there is a number, and operator.ge or operator.le holds of it and the bound."""
    return number is not None and compared(number, bound)      # a difference of a float and a large int would overflow


def size_of(value):
    return len(value) if isinstance(value, (str, list)) else None


# name: (what its argument is, the types of value that it is about, its words, whether it holds)
CHECKS = {
    "equals": ("a value", ANY, "{}", lambda value, wanted, how: equal(value, wanted)),
    "one_of": ("a list of values", ANY, "one of {}",
               lambda value, wanted, how: any(equal(value, one, how) for one in wanted)),
    "contains": ("an item or a list of items", SIZED, "to contain {}",
                 lambda value, wanted, how: all(has_item(value, one) for one in each(wanted))),
    "not_contains": ("an item or a list of items", SIZED, "not to contain {}",
                     lambda value, wanted, how: not any(has_item(value, one) for one in each(wanted))),
    "matches": ("a regular expression", TEXT, "to match {}", lambda value, wanted, how: is_found(value, wanted)),
    "not_matches": ("a regular expression", TEXT, "not to match {}",
                    lambda value, wanted, how: not is_found(value, wanted)),
    "at_least": ("a number", NUMERIC, "at least {}", lambda value, wanted, how: reaches(number_of(value), wanted, operator.ge)),
    "at_most": ("a number", NUMERIC, "at most {}", lambda value, wanted, how: reaches(number_of(value), wanted, operator.le)),
    "length_at_least": ("a count", SIZED, "a length of at least {}",
                        lambda value, wanted, how: reaches(size_of(value), wanted, operator.ge)),
    "length_at_most": ("a count", SIZED, "a length of at most {}",
                       lambda value, wanted, how: reaches(size_of(value), wanted, operator.le)),
    "all": ("a list of checks", ANY, "{}", lambda value, wanted, how: not any(unmet(one, value, how) for one in wanted)),
    "any": ("a list of checks", ANY, "{}", lambda value, wanted, how: not all(unmet(one, value, how) for one in wanted)),
    "not": ("a check", ANY, "not {}", lambda value, wanted, how: unmet(wanted, value, how) is not None),
}


def is_check(expected) -> bool:
    """Whether an expectation is an object of checks, and no literal."""
    return isinstance(expected, dict) and bool(expected) and all(name in CHECKS for name in expected)


def in_words(expected, how) -> str:
    """An expectation as the end of "expected …": "1.8 within 0.005", "at least 1 and at most 5"."""
    if is_check(expected):
        return listed((CHECKS[name][2].format(argument_words(name, wanted, how)) for name, wanted in expected.items()), "and")
    if isinstance(how, dict) and is_number(expected):
        (kind, size), = how.items()
        return f"{brief(expected)} within {brief(size)}{' %' * (kind == 'within_percent')}"
    return brief(expected) + " in any order" * (how == "set" and isinstance(expected, list))


def argument_words(name, wanted, how) -> str:
    """The argument of a check in words: ["a", "b"] → '"a" or "b"'."""
    what = CHECKS[name][0]
    words = (lambda one: in_words(one, how)) if "check" in what else brief
    return listed(map(words, each(wanted) if "list" in what else [wanted]), "and" if name in ("contains", "all") else "or")


def unmet(expected, value, how):
    """The part of an expectation that a value does not meet, as the end of "expected …"; None where it meets all."""
    if not is_check(expected):
        return None if equal(value, expected, how) else in_words(expected, how)
    failing = {name: wanted for name, wanted in expected.items() if not CHECKS[name][3](value, wanted, how)}
    return in_words(failing, how) if failing else None


def argument_problem(name, wanted, kinds):
    """What is wrong with the argument of a check of a value of these types, or None."""
    what, is_list = CHECKS[name][0], isinstance(wanted, list) and wanted != []
    if what == "a regular expression":
        return pattern_problem(wanted)
    texts_only = what.startswith("an item") and "array" not in kinds
    fits = {"a value": True, "a list of values": is_list, "a number": is_number(wanted), "a check": is_check(wanted),
            "a list of checks": is_list and all(map(is_check, wanted)), "a count": is_kind(wanted, "integer") and wanted >= 0,
            "an item or a list of items": wanted != [] and not (texts_only and not all(isinstance(one, str) and one for one in each(wanted)))}
    if fits[what]:
        return None
    return f"{brief(wanted)} is not {what.replace('an item', 'a text').replace('items', 'texts') if texts_only else what}{CHECK_EXAMPLE * what.endswith(('check', 'checks'))}"


def pattern_problem(pattern, groups=None):
    """Why a value cannot serve as a regular expression (with so many groups), or None."""
    if not isinstance(pattern, str):
        return f"{brief(pattern)} is not a text with a regular expression"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = re.compile(pattern).groups
    except (re.error, RecursionError, OverflowError, MemoryError) as error:
        return f"{brief(pattern)} is no regular expression: {error}"
    return None if groups in (None, found) else \
        f"{brief(pattern)} has {found} groups: put ( ) around what is to be compared, and (?: ) elsewhere"


# What a schema says

def kinds_of(schema) -> list:
    """The types that a schema allows: its "type", else those of its enum or const, else all."""
    options = [schema["const"]] if "const" in schema else schema.get("enum", [])
    if "type" not in schema and options:
        return [kind for kind in KINDS if any(is_kind(option, kind) for option in options)]
    return each(schema.get("type", list(KINDS)))


def kind_words(kinds) -> str:
    return listed(KINDS[kind][1] for kind in kinds if kind != "integer" or "number" not in kinds)


def misfits(schema: dict, value, name="the reply", where=""):
    """Each way in which a value is not what a schema says, as texts: 'total is "x", not a number'."""
    if isinstance(schema, bool):        # of a field or an item: anything may be there, or nothing
        yield from () if schema else [f"{name} may not be there"]
        return
    kinds, properties, extra = kinds_of(schema), schema.get("properties", {}), schema.get("additionalProperties", True)
    options = [schema["const"]] if "const" in schema else schema.get("enum")
    if not any(is_kind(value, kind) for kind in kinds):
        yield f"{name} is {brief(value)}, not {kind_words(kinds)}"
    elif options and not any(equal(value, option) for option in options):
        yield f"{name} is {brief(value)}, not {'one of ' * bool(options[1:])}{', '.join(map(brief, options))}"
    elif isinstance(value, dict):
        yield from (f"{where}{key} is missing" for key in schema.get("required", ()) if key not in value)
        for key, item in value.items():
            if key in properties or isinstance(extra, dict):
                yield from misfits(properties.get(key, extra), item, where + key, f"{where}{key}.")
            elif not extra:
                yield f"{json.dumps(key, ensure_ascii=False)} is not a field of {name}"
    elif isinstance(value, list):
        for number, item in enumerate(value if "items" in schema else ()):
            yield from misfits(schema["items"], item, f"{name}[{number}]", f"{name}[{number}].")


def schema_problems(schema, unchecked, where="schema"):
    """What is wrong with a JSON schema, as texts; the keywords that no check looks at go into the set unchecked."""
    problems = list(misfits(SCHEMA_SHAPE, schema, where, f"{where}: "))
    yield from (problem + ', such as {"type": "number"}' * problem.startswith(f"{where} is ") for problem in problems)
    if problems:
        return
    unchecked.update(set(schema) - set(SCHEMA_SHAPE["properties"]) - SAID_ASIDE)
    properties, extra = schema.get("properties", {}), schema.get("additionalProperties", True)
    yield from (f"{where}: type is {brief(kind)}, not one of {', '.join(KINDS)}{nearest(kind, KINDS)}"
                for kind in each(schema.get("type", "null")) or [[]] if kind not in tuple(KINDS))
    yield from (f"{where}: required names {brief(key)}, which properties has not{nearest(key, properties)}"
                for key in schema.get("required", ()) if properties and key not in properties)
    for key, part in [*properties.items(), ("items", schema.get("items", True)), ("additionalProperties", extra)]:
        if not isinstance(part, bool):
            yield from schema_problems(part, unchecked, f"{where}: {key}")


def by_field(schema) -> bool:
    """Whether a reply is an object whose fields are compared one by one; without a schema it is a text."""
    return schema is not None and "object" in each(schema.get("type", "object" if "properties" in schema else "text"))


def part_of(schema, field) -> dict:
    """The schema of a field of an object, or the schema itself for None."""
    found = schema if field is None else schema.get("properties", {}).get(field, schema.get("additionalProperties"))
    return found if isinstance(found, dict) else {}


def field_problem(schema, field):
    """What is wrong with the name of a reply's field, or None."""
    properties = schema.get("properties", {})
    if field in properties or schema.get("additionalProperties", not properties):
        return None
    return f"the schema has no field {brief(field)}{nearest(field, properties) or '; it has ' + listed(properties, 'and')}"


def expectation_faults(expected, schema, how, where):
    """What is wrong with an expectation of a value that a schema describes, as texts."""
    kinds = kinds_of(schema)
    for name, wanted in expected.items() if is_check(expected) else ():
        problem, about = argument_problem(name, wanted, kinds), CHECKS[name][1]
        if problem:
            yield f"{where}: {name}: {problem}"
        elif not set(about) & set(kinds):
            yield f"{where}: {name} is about {kind_words(about)}, and the schema says {kind_words(kinds)}"
        elif name in ("one_of", "equals"):
            for one in each(wanted) if name == "one_of" else [wanted]:
                yield from literal_faults(one, schema, how if name == "one_of" else "exact", where)
        elif name in ("all", "any", "not"):
            for one in each(wanted):
                yield from expectation_faults(one, schema, how, where)
        elif name.endswith("at_least") and is_number(expected.get(name[:-5] + "most")) and expected[name[:-5] + "most"] < wanted:
            yield f"{where}: nothing is {in_words(expected, how)}"
    if is_check(expected):
        return
    names = [name for name in expected if name not in CHECKS] if isinstance(expected, dict) else []
    hint = "".join(nearest(name, CHECKS) for name in names) or f"; the checks are {', '.join(CHECKS)}"
    if names and "object" not in kinds:
        yield f"{where} is {brief(expected)}, neither {kind_words(kinds)} nor a check{hint}"
    elif names and len(names) < len(expected):
        yield f'{where} mixes checks and other keys, {brief(expected)}{hint}; {{"equals": {{…}}}} expects such an object'
    else:
        yield from literal_faults(expected, schema, how, where)


def literal_faults(wanted, schema, how, where):
    """Why no reply could be what a literal says, as texts."""
    if how == "text" and any(equal(option, wanted, how) for option in schema.get("enum", ())):
        return
    if isinstance(how, dict) and is_number(wanted) and set(NUMERIC) & set(kinds_of(schema)):
        return
    if schema is TEXT_REPLY and isinstance(wanted, str) and wanted != wanted.strip() and how != "text":
        yield f"{where} is {brief(wanted)}: a reply has no white space at its ends, so leave it out"
    yield from (f"{problem}: no reply can be that" for problem in misfits(schema, wanted, where, f"{where}."))


def compare_faults(schema, compare):
    """What is wrong with how a task compares, as texts."""
    ways = {None: compare}
    if by_field(schema):
        if not isinstance(compare, dict):
            yield f'compare: {brief(compare)} is not an object such as {{"total": {{"within": 0.005}}}}'
            return
        yield from (f"compare: {field_problem(schema, field)}" for field in compare if field_problem(schema, field))
        ways = compare
    for field, how in ways.items():
        names = list(how) if isinstance(how, dict) else [how]
        name, kinds = names[0] if names else None, kinds_of(TEXT_REPLY if schema is None else part_of(schema, field))
        known = len(names) == 1 and name in tuple(COMPARE) and name.startswith("within") == isinstance(how, dict)
        if not known or isinstance(how, dict) and not (is_number(how[name]) and how[name] >= 0):
            hint = "".join(nearest(name, COMPARE) for name in names if name not in tuple(COMPARE))
            yield f"compare: {brief(how)} is none of {', '.join(words for words, _ in COMPARE.values())}{hint}"
        elif not set(COMPARE[name][1]) & set(kinds):
            yield f"compare: {brief(how)} is about {kind_words(COMPARE[name][1])}, and {field or 'the reply'} is {kind_words(kinds)}"


def definition_faults(definition, unchecked):
    """(part, what is wrong with it) of a task's parts that grade."""
    schema, extract, compare = (definition.get(key) for key in ("schema", "extract", "compare"))
    if not isinstance(definition.get("name"), str) or not definition["name"].strip():
        yield "name", 'name is empty, not there or no text: give one such as "receipts", for the log and the report'
    problems = [] if schema is None else list(schema_problems(schema, unchecked))
    yield from (("schema", problem) for problem in problems)
    if extract is not None and schema is not None:
        yield "extract", "extract is for text replies, and this task has a schema: leave one of them out"
    elif extract is not None and pattern_problem(extract, 1):
        yield "extract", f"extract: {pattern_problem(extract, 1)}"
    if compare is not None and not problems:
        yield from (("compare", problem) for problem in compare_faults(schema, compare))


# The task itself

class DataTask:
    """A task that was read, not imported: what grades (definition), what is asked, its own cases where it has some.

    A definition {name, schema, extract, compare} alone, which may come from anywhere, grades as the task file did; CaseError
    lists what is wrong with one."""

    def __init__(self, definition: dict, asked=None, cases=None):
        if not isinstance(definition, dict) or too_deep(definition) or len(canonical(definition)) > MOST_DEFINITION:
            raise CaseError("the task is no object, too deep or too large")
        unchecked = set()
        problems = [problem for _, problem in definition_faults(definition, unchecked)]
        if problems:
            raise CaseError("\n".join(map(printable, problems)))
        self.definition = {key: definition.get(key) for key in ("name", "schema", "extract", "compare")}
        self.NAME, self.schema, self.extract, self.compare = self.definition.values()
        self.fields, self.asked, self.cases = by_field(self.schema), asked, cases
        self.warnings = [f"no check looks at what the schema says with {listed(sorted(unchecked), 'and')}"] * bool(unchecked)
        self.CHECKS = (("output-fields", self.check_output), ("failure-criteria", self.check_criteria),
                       ("expectation", self.check_expectation))

    def part(self, field) -> tuple:
        """(schema, way to compare) of a field of the reply, or of the whole reply for None."""
        ways = self.compare or {} if self.fields else {None: self.compare or "exact"}
        return TEXT_REPLY if self.schema is None else part_of(self.schema, field), ways.get(field, "exact")

    def value_of(self, output):
        """What of an output is compared: a text without outer white space, or what is extracted of it (None: nothing)."""
        if self.schema is not None or self.extract is None:
            return output if self.schema is not None else Reply(output.strip())
        found = searched(self.extract, output, True)
        return Reply(found[0].strip()) if found and found[0] is not None else None

    def check_output(self, case, output):
        """What keeps an output from being of the right shape."""
        shape = OBJECT if self.fields and not isinstance(output, dict) else STRING if self.schema is None else self.schema
        problems = misfits(shape, output)       # whatever else a schema allows, fields are compared
        shown = "; ".join(itertools.islice(problems, 5))
        return shown or (f"nothing in the reply matches {brief(self.extract)}" if self.value_of(output) is None else None)

    def check_criteria(self, case, output):
        """The first criterion that fails this output whatever else holds."""
        whole = Reply(output.strip()) if self.schema is None else output
        for criterion in case.get("failure_criteria", ()):
            field = criterion.get("field")
            value = whole if field is None else whole.get(field, ABSENT)
            if value is not ABSENT and unmet(condition(criterion), value, "exact") is None:
                return f"{field or 'the reply'} is {brief(value)}: {criterion['why']}"
        return None

    def check_expectation(self, case, output):
        """The expected fields that the output does not match, or the value."""
        value, differing = self.value_of(output), []
        expected = case["expect"] if self.fields else {None: case["expect"]}
        for field, wanted in expected.items():
            how, name = self.part(field)[1], field or ("the extract" if self.extract else "the reply")
            found = value if field is None else value.get(field, ABSENT)
            if found is ABSENT:
                differing.append(f"{name} is missing, expected {in_words(wanted, how)}")
            elif unmet(wanted, found, how):
                differing.append(f"{name} is {brief(found)}, expected {unmet(wanted, found, how)}")
        return "; ".join(differing) or None

    def case_problems(self, case) -> list:
        """What is wrong with the expectations of a case, one text a problem."""
        expected, criteria = case.get("expect"), case.get("failure_criteria", [])
        if self.fields and not isinstance(expected, dict):
            return [f'expect is {brief(expected)}, not an object of fields such as {{"total": 1.8}}']
        problems = []
        for field, wanted in expected.items() if self.fields else ((None, expected),):
            problem = field_problem(self.schema, field) if field else None
            if problem:
                problems.append(f"expect: {problem}")
            elif wanted is not None or not field:       # a null that the schema does not allow is a doubt
                problems += expectation_faults(wanted, *self.part(field), f"expect: {field}" if field else "expect")
        if not isinstance(criteria, list):
            return problems + [f"failure_criteria is {brief(criteria)}, not a list of {CRITERION}"]
        return problems + [f"failure_criteria[{number}]: {problem}" for number, criterion in enumerate(criteria)
                           for problem in self.criterion_faults(criterion, expected)]

    def doubts(self, case):
        """What of a case is no fault and yet cannot pass, as texts: null where the schema forbids it."""
        expected = case["expect"] if self.fields and "expect" in case else {}
        return [f"case {case['id']}: expect: {field} is null, and the schema says {kind_words(kinds_of(self.part(field)[0]))}: "
                'no reply that keeps to it can pass; a type such as ["number", "null"] allows both'
                for field, wanted in expected.items() if wanted is None and list(misfits(self.part(field)[0], None))]

    def criterion_faults(self, criterion, expected):
        """What is wrong with one failure criterion, as texts."""
        if list(misfits(CRITERION_SHAPE, criterion)) or ("is" in criterion) == ("equals" in criterion):
            yield f"it is not {CRITERION}"
            return
        field, wanted = criterion.get("field"), expected
        if not criterion["why"].strip():
            yield "it has no reason in why"
        if field is not None and (not self.fields or field_problem(self.schema, field)):
            yield field_problem(self.schema, field) if self.fields else "the reply has no fields: leave out field"
            return
        problems = list(expectation_faults(condition(criterion), self.part(field)[0], "exact", field or "the reply"))
        yield from problems
        if field is not None or self.fields:
            wanted = expected.get(field, ABSENT)
        elif self.schema is None:
            wanted = Reply(expected) if isinstance(expected, str) and not self.extract else ABSENT
        if not problems and wanted is not ABSENT and not is_check(wanted) and unmet(condition(criterion), wanted, "exact") is None:
            yield f"it fails the very {field or 'reply'} that expect asks for"


def condition(criterion):
    """What a failure criterion asks of its field: a literal or a check."""
    return criterion["is"] if "is" in criterion else {"equals": criterion["equals"]}


# What is asked

def filled(template: str, case_input) -> str:
    """A message template with a case's input in it: ("Sort {input.subject}", {"subject": "Bill"}) → "Sort Bill"."""
    def text_for(found):
        value = case_input if found[1] is None else case_input[found[1]]
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return PLACEHOLDER.sub(text_for, template)


def with_prompt(asked: dict, prompt=None, system_prompt=None) -> dict:
    """What is asked with another last user message, another system message (none where it is "")."""
    messages = [message for message in asked["messages"] if system_prompt is None or message["role"] != "system"]
    messages = [{"role": "system", "content": system_prompt}] * bool(system_prompt) + messages
    if prompt is not None:
        users = [number for number, message in enumerate(messages) if message["role"] == "user"] or [len(messages)]
        messages[users[-1]:users[-1] + 1] = [{"role": "user", "content": prompt}]
    return {**asked, "messages": messages}


def asked_problems(asked: dict, cases: list) -> list:
    """What is wrong between the placeholders of what is asked and the inputs of the cases, as texts."""
    inputs = [(case.get("id"), case["input"]) for case in cases
              if isinstance(case, dict) and isinstance(case.get("input"), (str, dict)) and "expect" in case]
    placeholders = [found[1] for message in asked["messages"] for found in PLACEHOLDER.finditer(message["content"])]
    if inputs and not placeholders:
        return ["the prompt has no {input}, so all cases would be asked the same: put {input} where a case's input goes"]
    known = {key for _, given in inputs if isinstance(given, dict) for key in given}
    problems = []
    for field in dict.fromkeys(filter(None, placeholders)):
        lacking = [name for name, given in inputs if not isinstance(given, dict) or field not in given]
        if inputs and len(lacking) == len(inputs):
            problems.append(f"the prompt has {{input.{field}}}, and no case's input has that field{nearest(field, known)}")
        else:
            problems += [f"case {name}: input has no field {brief(field)}, for which the prompt has a place" for name in lacking]
    return problems


def read_prompt(path) -> str:
    """The text of a prompt's file without its last line break; RunError when it is not there, blank or no UTF-8."""
    try:
        text = read_text(path).replace("\r\n", "\n")
    except OSError as error:
        raise RunError(f"{path}: {error.strerror}") from None
    if not text.strip():
        raise RunError(f"{path}: the file is empty")
    return text[:-1] if text.endswith("\n") else text


def asked_faults(document, folder):
    """(key, what is wrong with it) of a task file's parts that ask; prompt_file is replaced by the prompt in it."""
    given = [key for key in ("prompt", "prompt_file", "messages") if key in document]
    if len(given) != 1:
        yield "prompt", "it has " + (listed(given, "and") + ": give one of them" if given else
                                     "no prompt: it says what is asked, with {input} where a case's input goes")
    if "messages" in document and "system_prompt" in document:
        yield "system_prompt", "system_prompt cannot go with messages: put it first among them, with the role system"
    for key, value in list(document.items()):
        if key not in TASK_SHAPE:
            yield key, f"unknown key {brief(key)}{nearest(key, TASK_SHAPE) or '; a task has ' + ', '.join(TASK_SHAPE)}"
        elif key not in ("name", "cases") and (value == [] or isinstance(value, str) and not value.strip()):
            yield key, f"{key} is empty: write something, or leave it out"
        else:
            example = TASK_SHAPE[key].get("examples")
            yield from ((key, problem + f", such as {json.dumps(example)}" * bool(example))
                        for problem in misfits(TASK_SHAPE[key], value, key, f"{key}: "))
    if isinstance(document.get("test"), str) and test_problem(document["test"]):
        yield "test", test_problem(document["test"])
    if given == ["prompt_file"] and isinstance(document["prompt_file"], str):
        try:
            document["prompt"] = read_prompt(os.path.join(folder, document["prompt_file"]))
        except RunError as error:
            yield "prompt_file", f"prompt_file: {error}"


def read_task(path) -> tuple:
    """(task, problems) of a task file; parts with a fault are left out of the task. RunError when it cannot be read."""
    document = read_json(path)
    if not isinstance(document, dict):
        raise RunError(f'{path}: not a task: a task is an object {{"name": …, "prompt": …, "cases": […]}}')
    document = {key: value for key, value in document.items() if value is not None}
    cases, test = document.get("cases"), document.get("test")
    tested = test is not None or isinstance(cases, list) and any(isinstance(case, dict) and "test" in case for case in cases)
    if tested and "schema" not in document and "extract" not in document:
        document["schema"] = TEST_SCHEMA
    faults = [*definition_faults(document, set()), *asked_faults(document, os.path.dirname(path))]
    spoilt = {key for key, _ in faults}
    sound = {key: value for key, value in document.items() if key not in spoilt}
    definition = {"name": "task", **{key: sound[key] for key in ("name", "schema", "extract", "compare") if key in sound}}
    if "schema" in spoilt:      # the other parts cannot be judged without it
        definition = {"name": definition["name"], "schema": {"type": "object"}}
    prompt = [{"role": "user", "content": sound["prompt"]}] if "prompt" in sound else []
    asked = {"messages": sound.get("messages", prompt), "schema": sound.get("schema"), "options": sound.get("options", {}),
             "think": sound.get("think"), **({"test": test} if test is not None else {})}
    asked = with_prompt(asked, None, sound.get("system_prompt")) if asked["messages"] else asked
    return DataTask(definition, asked, document.get("cases")), [problem for _, problem in faults]


# Tasks and cases

def is_task_file(spec) -> bool:
    return str(spec).lower().endswith(".json")


def load_task(name: str):
    """The task module of that name (it has NAME, CHECKS and case_problems), or the DataTask of a .json file."""
    if is_task_file(name):
        task, problems = task_of_file(name)
        return raise_problems(name, problems) or task
    task = import_named(name, "task")
    missing = [part for part in ("NAME", "CHECKS", "case_problems") if not hasattr(task, part)]
    if missing:
        raise RunError(f"module {name} is no task: it has no {', '.join(missing)}")
    checks = [isinstance(pair, (tuple, list)) and len(pair) == 2 and isinstance(pair[0], str) and callable(pair[1])
              for pair in task.CHECKS]
    if not isinstance(task.NAME, str) or not all(checks) or not callable(task.case_problems):
        raise RunError(f"module {name} is no task: NAME is a text, CHECKS are pairs (name, function), "
                       "case_problems is a function")
    return task


def task_identity(task) -> dict:
    """{name, sha256} of a task: over the source of a module, newlines normalised; over what grades in a DataTask.

    A guard at a module's end grades nothing and is left out."""
    if isinstance(task, DataTask):
        return {"name": task.NAME, "sha256": sha256(canonical([CHECKS_VERSION, task.schema, task.extract, task.compare]))}
    source = getattr(task, "__loader__", __loader__).get_data(str(task.__file__)).replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    source = re.sub(rb'\n\n+if __name__ == "__main__":\n(?:[ \t].*\n|\n)*\Z', b"\n", source)
    return {"name": task.NAME, "sha256": hashlib.sha256(source).hexdigest()}


def expectation_problems(case, task):
    """What is wrong with what a case expects, the task's own view included."""
    if ("expect" in case) == ("expect_rejection" in case):
        return ["give either expect or expect_rejection, " + ("not both" if "expect" in case else "it has neither")]
    if "expect_rejection" in case:
        problems = []
        if not isinstance(case["expect_rejection"], str) or not case["expect_rejection"].strip():
            problems.append("expect_rejection is not the text of a refusal")
        if "failure_criteria" in case:
            problems.append("failure_criteria cannot go with expect_rejection: there is no output to check")
        return problems
    if case["expect"] == {} or case["expect"] is None and not isinstance(task, DataTask):
        return ["nothing to check: expect names no field"]
    try:
        return [str(problem) for problem in task.case_problems(case)]
    except Exception as error:      # the task's own code runs here
        raise RunError(f"case_problems of {task.NAME} raised {type(error).__name__} on case "
                       f"{json.dumps(case.get('id'))}: {error}") from error


def path_problem(path):
    """Why no file of a case may have a path, or None: it must stay within the folder that it is put into."""
    if any(part.strip() in ("", ".", "..") for part in path.split("/")):
        return "is not a path below the folder: give it without a / at its ends, and without . and .. in it"
    if UNPRINTABLE.search(path) or NOT_EVERYWHERE.search(path):
        return ("is not the path of a file as every system takes it: part folders with /, and leave out controls, any of "
                '\\ : * ? " < > |, a dot or blank at the end of a name, and names of devices such as con and nul')
    return None


def files_problems(case, task):
    """What is wrong with the files that a case brings and with its test."""
    for key in ("files", "hidden"):
        files = case.get(key, {})
        if not isinstance(files, dict) or not all(isinstance(text, str) for text in files.values()):
            yield f'{key} is not an object of texts such as {{"src/main.py": "print()"}}'
            continue
        yield from (f"{key}: {json.dumps(path)} {path_problem(path)}" for path in files if path_problem(path))
        yield from (f"{key}: {json.dumps(path)} is a file and the folder of another" for path in files
                    if any(other.startswith(path + "/") for other in files))
    if "test" in case and test_problem(case["test"]):
        yield test_problem(case["test"])
    if "test" in case and isinstance(task, DataTask) and "exit" not in ((task.schema or {}).get("properties") or ()):
        yield 'a test is graded by the field "exit", which the task\'s schema lacks: add it, an integer'
    asked = getattr(task, "asked", None)        # a task that was rebuilt to grade asks nothing
    if case.get("hidden") and asked is not None and "test" not in case and "test" not in asked:
        yield "hidden files are for a test, and there is none: give the case or the task a test"


def test_problem(test):
    """What is wrong with a test's command, or None."""
    try:
        if isinstance(test, str) and shlex.split(test):
            return None
    except ValueError:
        pass
    return f'test is {brief(test)}, not a command such as "python3 -m unittest"'


def one_case_problems(case, task):
    """What is wrong with one case, duplicates apart."""
    if not isinstance(case, dict):
        return ['it is not an object {"id": …, "input": …, "expect": …}']
    problems = [f"{key} is empty or not text" for key in ("id", "class")
                if not isinstance(case.get(key), str) or not case[key].strip()]
    if case.get("split") not in SPLITS:
        problems.append(f"split is {brief(case.get('split'))}, not one of {', '.join(SPLITS)}")
    data = isinstance(task, DataTask)
    if "input" not in case or not isinstance(case["input"], (str, type(None), *[dict] * data)):
        problems.append(f"input is neither text{', an object' * data} nor null" if "input" in case else "input is not there")
    problems += [f"unknown key {json.dumps(key)}{nearest(key, CASE_KEYS) or '; a case has ' + ', '.join(CASE_KEYS)}"
                 for key in case if key not in CASE_KEYS and (data or nearest(key, CASE_KEYS))]
    return problems + list(files_problems(case, task)) + expectation_problems(case, task)


def case_file_problems(document, task):
    """Every problem of a case file's content, one text each."""
    if not isinstance(document, dict) or not isinstance(document.get("cases"), list):
        return ['not of the shape {"name": …, "cases": […]}']
    problems = []
    if not isinstance(document.get("name"), str) or not document["name"].strip():
        problems.append("name is empty or not text")
    if not document["cases"]:
        problems.append("there are no cases")
    first = {}
    for number, case in enumerate(document["cases"]):
        case_id = case.get("id") if isinstance(case, dict) else None
        named = isinstance(case_id, str) and case_id.strip()
        where = f"case {printable(case_id)}" if named else f"cases[{number}]"
        problems += [f"{where}: {printable(problem)}" for problem in one_case_problems(case, task)]
        earlier = first.setdefault(case_id.strip().casefold(), number) if named else number
        if earlier != number:
            same = document["cases"][earlier]["id"] == case_id
            problems.append(f"cases[{number}]: the id {json.dumps(case_id)} is that of cases[{earlier}]"
                            + ("" if same else " but for case or space"))
    return problems


def raise_problems(path, problems) -> None:
    """CaseError where there are any, each a line with the file's name."""
    if problems:
        raise CaseError("\n".join(printable(f"{path}: {problem}") for problem in problems))


def completed(case, task, line=None):
    """A case with what may be left out: its class, its split and, in a file of lines, its id."""
    if not isinstance(case, dict):
        return case
    return {**({"id": str(line)} if line else {}), "class": task.NAME, "split": SPLITS[0], **case}


def cell_value(text, column, task):
    """A cell of CSV: a text where its column, or the schema of what it expects, allows one, else JSON."""
    name, _, field = column.partition(".")
    data, kinds = isinstance(task, DataTask), ["string"]
    if name == "failure_criteria" or name == "expect" and not field and data and task.schema:
        kinds = ["object", "array"]
    elif name == "expect":
        kinds = kinds_of(task.part(field or None)[0]) if data else ANY
    if "string" in kinds and (len(kinds) < len(ANY) or text.lower() not in ("true", "false")):      # of any kind
        return text
    try:
        return parse_json(text.lower() if text.lower() in ("true", "false", "null") else text)
    except ValueError:
        return text


def csv_rows(text, path):
    """(number of its first line, cells) of each row of a CSV file that is not blank."""
    csv.field_size_limit(1 << 30)
    head = text.split("\n", 1)[0]
    delimiter = next((mark for mark in ",;\t" if re.search(rf'(^|[{mark}"])input(\.[^,;\t]*)?"?($|[{mark}\r])', head)), ",")
    rows, begun = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True), 1
    try:
        for cells in rows:
            if any(cell.strip() for cell in cells):
                yield begun, cells
            begun = rows.line_num + 1
    except csv.Error as error:
        raise RunError(f"{path}: line {begun}: not CSV: {error}") from None


def csv_cases(text, path, task) -> list:
    """(line number, case) of each row of CSV with a header; an empty cell leaves its field out."""
    rows = list(csv_rows(text, path))
    if not rows:
        raise RunError(f"{path}: no header: the first line names the columns, such as id,input,expect")
    columns, cases = [name.strip() for name in rows[0][1]], []
    known = [*CASE_KEYS, *(name for name in columns if name.partition(".")[0] in ("input", "expect"))]
    for name in columns:
        if name not in known or columns.count(name) > 1:
            keys = f"; a case has {', '.join(CASE_KEYS)}, and fields of an object as input.{name} or expect.{name}"
            raise RunError(f"{path}: line {rows[0][0]}: " + (f"the column {json.dumps(name)} stands twice" if name in known else
                           f"unknown column {json.dumps(name)}{nearest(name, CASE_KEYS) or keys}"))
    for line, cells in rows[1:]:
        if len(cells) > len(columns):
            raise RunError(f"{path}: line {line}: {len(cells)} cells where the header has {len(columns)}: put a text with a comma into quotes")
        case = {}
        for column, cell in zip(columns, cells):
            name, dot, field = column.partition(".")
            if cell == "" and column != "input":
                continue
            value = cell_value(cell, column, task)
            if dot:
                case.setdefault(name, {})
                if isinstance(case[name], dict):
                    case[name][field] = value
            else:
                case[name] = value
        cases.append((line, case))
    return cases


def read_case_file(path, task) -> dict:
    """The document {"name", "cases"} of a case file (JSON, JSON Lines, CSV) or task file, cases completed."""
    suffix = Path(path).suffix.lower()
    if suffix in (".jsonl", ".ndjson", ".csv"):
        text = read_text(path)
        found = csv_cases(text, path, task) if suffix == ".csv" else [
            (number, parsed(line, path, number)) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
        return {"name": Path(path).stem, "cases": [completed(case, task, line) for line, case in found]}
    document = read_json(path)
    if isinstance(task, DataTask):
        if isinstance(document, list):
            document = {"name": Path(path).stem, "cases": document}
        if isinstance(document, dict) and isinstance(document.get("cases"), list):
            return {"name": document.get("name"), "cases": [completed(case, task) for case in document["cases"]]}
    return document


def case_set_of(document, task) -> dict:
    """The case set {name, sha256, cases} of a document without problems."""
    hashed = document["cases"] if isinstance(task, DataTask) else document
    return {"name": document["name"], "sha256": sha256(canonical(hashed)), "cases": document["cases"]}


def load_cases(path, task) -> dict:
    """The case set {name, sha256, cases} of a file; CaseError lists all its problems, one a line."""
    try:
        document = read_case_file(path, task)
    except RunError as error:
        raise CaseError(printable(str(error))) from None
    problems = case_file_problems(document, task)
    if problems and not isinstance(task, DataTask) and are_strangers(document, task):
        problems = [f"its cases are not of the task {task.NAME} ({problems[-1]}): give their own task as well, "
                    f"as in bench.py TASK.json --cases {as_word(path)}, or --task MODULE"]
    raise_problems(path, problems)
    return case_set_of(document, task)


def are_strangers(document, task) -> bool:
    """Whether the task knows none of what the cases of a document expect."""
    cases = document.get("cases") if isinstance(document, dict) else None
    asked = [case for case in cases if isinstance(case, dict) and "expect" in case] if isinstance(cases, list) else []
    return len(asked) > 1 and all(expectation_problems(case, task) for case in asked)


def task_of_file(path) -> tuple:
    """(task, problems) of a task file; CaseError when it cannot be read at all."""
    try:
        return read_task(path)
    except RunError as error:
        raise CaseError(printable(str(error))) from None


def load_plan(task_spec: str, cases_path=None) -> tuple:
    """(task, case set): the cases of that file, else of the task file itself or those beside the tool for triage_task.

    CaseError lists all problems of both files."""
    if not is_task_file(task_spec):
        task = load_task(task_spec)
        if cases_path is None and task_spec != "triage_task":
            raise UsageError(f"task {task_spec} has no cases of its own: give them with --cases FILE")
        return task, load_cases(DEFAULT_CASES if cases_path is None else cases_path, task)
    task, problems = task_of_file(task_spec)
    found = [f"{task_spec}: {problem}" for problem in problems]
    source = task_spec if cases_path is None else cases_path
    try:
        if cases_path is None and task.cases is None:
            raise RunError(f"{task_spec}: it has no cases: write them under \"cases\", or give a file with --cases")
        document = read_case_file(source, task)
        if cases_path is None:
            document["name"] = task.NAME
        problems = case_file_problems(document, task)
        if isinstance(document, dict) and isinstance(document.get("cases"), list) and task.asked["messages"]:
            problems += asked_problems(task.asked, document["cases"])
        found += [f"{source}: {problem}" for problem in problems]
    except RunError as error:
        found.append(str(error))
    if found:
        raise CaseError("\n".join(map(printable, dict.fromkeys(found))))
    task.warnings += [doubt for case in document["cases"] for doubt in task.doubts(case)]
    return task, case_set_of(document, task)


def is_trial_count(value) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MAX_TRIALS


def plan(case_set: dict, splits, trials: int, include_held_out: bool = False) -> list:
    """The cases of a run, in file order; RunError for a split, a trial count or a choice that cannot be run."""
    splits = list(splits)
    for split in splits:
        if split not in SPLITS:
            raise RunError(f"unknown split {json.dumps(split)}{nearest(split, SPLITS)}")
    if len(set(splits)) < len(splits):
        raise RunError("a split is named twice")
    if "held-out" in splits and not include_held_out:
        raise RunError("the held-out cases are kept for a final evaluation: no benchmark run may touch them")
    if not is_trial_count(trials):
        raise RunError(f"trials is {json.dumps(trials)}, not a whole number from 1 to {MAX_TRIALS}")
    cases = [case for case in case_set["cases"] if case["split"] in splits]
    if not cases:
        raise RunError(f"{case_set['name']} has no case of the split {' or '.join(splits) or '(none named)'}")
    return cases


# Contamination: what cases share with one another and with what a model is shown

def texts_in(value):
    """Every text of a JSON value, the names of its fields aside."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list, tuple)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from texts_in(item)


def words_of(text: str) -> list:
    """["we", "paid", "twice"] of "We paid TWICE!"."""
    return re.findall(r"\w+", text.casefold())


def runs_of(text: str) -> list:
    """Each 8 words in a row of a text; of a shorter one of at least 3 words all of them."""
    words = words_of(text)
    return [" ".join(words[place:place + RUN_WORDS]) for place in range(max(1, len(words) - RUN_WORDS + 1))] if len(words) > 2 else []


def case_name(case) -> str:
    return f"{'held-out ' * (case['split'] == 'held-out')}case {case['id']}"


def shared_runs(cases, asked, examples) -> list:
    """What planned cases share with held-out ones, and cases with what is asked and the system's examples, as texts."""
    shown = [("the prompt", piece) for message in (asked or {"messages": ()})["messages"]
             for piece in PLACEHOLDER.split(message["content"])[::2]]
    shown += [("an example of the system", text) for text in texts_in(examples)]
    shown += [(case_name(case), text) for case in cases if case["split"] == "held-out" for text in texts_in(case["input"])]
    places, found = {}, {}
    for name, text in shown:
        for run in runs_of(text):
            names = places.setdefault(run, [])
            if name not in names and len(names) < 4:    # what stands everywhere is told of a few
                names.append(name)
    for case in cases:
        for run in [run for text in texts_in(case["input"]) for run in runs_of(text)]:
            for place in places.get(run, ()):
                if not (place.startswith("held-out") and case["split"] == "held-out"):
                    found.setdefault((case_name(case), place), run)
    return [f'{name} and {place} share "{run}"' for (name, place), run in found.items()]


def pairs_alike(texts) -> list:
    """[(share of words that are the same, place, place)] of texts, as lists of words, that are nearly the same.

    Each is known by a few of its 4 words in a row, so that only texts which share some of those are compared."""
    sketches, places = [], {}
    for number, words in enumerate(texts):
        marks = {zlib.crc32(" ".join(words[place:place + 4]).encode("utf-8", "replace")) for place in range(len(words) - 3)}
        sketches.append(sorted(marks)[:SKETCH_MARKS] if len(words) >= RUN_WORDS else [])
        for mark in sketches[-1]:
            places.setdefault(mark, []).append(number)
    shared = Counter(pair for found in places.values() for pair in
                     (itertools.combinations(found, 2) if len(found) <= 8 else zip(found, found[1:])))
    likely = [pair for pair, count in shared.most_common(MOST_COMPARED)
              if count >= 0.3 * min(len(sketches[place]) for place in pair)]
    found = []
    for first, second in sorted(likely):
        matcher = difflib.SequenceMatcher(None, texts[first][:1000], texts[second][:1000], autojunk=False)
        if matcher.quick_ratio() >= ALIKE and matcher.ratio() >= ALIKE:
            found.append((matcher.ratio(), first, second))
    return found


def twins(cases) -> list:
    """The cases whose inputs are the same, or nearly so, as texts."""
    first, told = {}, []
    for case in cases:
        words = tuple(words_of("\n".join(texts_in(case["input"]))))
        other = first.setdefault(words, case) if words else case
        if other is not case:
            differ = any(case.get(key) != other.get(key) for key in ("expect", "expect_rejection", "failure_criteria"))
            told.append(f"{case_name(other)} and {case_name(case)} have the same input" + ", and expect different things" * differ)
    texts, own = list(map(list, first)), list(first.values())
    return told + [f"{case_name(own[one])} and {case_name(own[two])} have nearly the same input: {share * 100:.0f} % of the words"
                   for share, one, two in pairs_alike(texts)]


def contamination(case_set: dict, asked=None, examples=()) -> list:
    """What makes the results of a case set doubtful, as texts: 8 words in a row that a planned case shares with a held-out
    one, or a case with what is asked or an example of the system; inputs that are the same or nearly so."""
    told = []
    for found in (shared_runs(case_set["cases"], asked, examples), twins(case_set["cases"])):
        told += found[:MOST_NAMED] + [f"and {len(found) - MOST_NAMED} more like these"] * (len(found) > MOST_NAMED)
    return told


# Systems and one call

def amount_problem(key, value):
    """What is wrong with what a trial's metadata counts or times, or None."""
    if value is None or type(value) in NUMBERS and 0 <= value <= MOST_AMOUNT:
        return None
    return f"metadata.{key} is {json.dumps(value)[:60]}, not a number from 0 to {MOST_AMOUNT:g}"


def has(system, name):
    """Whether an object has an attribute, found without running a property."""
    return inspect.getattr_static(system, name, None) is not None


def named_system(module, name, case_set):
    """What a module offers under a name; RunError with the nearest names."""
    found = getattr(module, name, None) if name.isidentifier() and not keyword.iskeyword(name) else None
    if found is None and not name.isidentifier() and hasattr(module, "system"):
        found = module.system(name)
    if callable(found) and not (has(found, "respond") and not inspect.isclass(found)):
        found = found(case_set)
    if found is None or not has(found, "respond"):
        known = sorted(key for key, value in vars(module).items()
                       if has(value, "respond") and not inspect.isclass(value))
        raise RunError(f"{module.__name__} has no system {json.dumps(name)} (it has {', '.join(known) or 'none'})"
                       f"{nearest(name, known)}")
    return found


def load_system(spec: str, case_set: dict):
    """The system that "MODULE:NAME" names: an attribute of the module (a class or function is called with the
    case set) or, where NAME could not be one, system(NAME) of the module."""
    module_name, colon, name = spec.partition(":")
    if not colon or not name:
        raise RunError(f"system {json.dumps(spec)} is not of the form MODULE:NAME, such as model_triage:bayes")
    module = import_named(module_name, "system")
    try:
        found = named_system(module, name, case_set)
    except (RunError, SystemDown):
        raise
    except Exception as error:      # the module's own code runs here
        raise RunError(f"system {spec} cannot be made: {raised(error)}") from error
    missing = [part for part in IDENTITY if inspect.getattr_static(found, part, ABSENT) is ABSENT]
    if missing:
        raise RunError(f"system {spec} has no {', '.join(missing)}")
    if not isinstance(found.name, str) or not found.name.strip():
        raise RunError(f"system {spec} has a name that is empty or not text")
    return found


def system_identity(system) -> dict:
    """What is measured: name, version, mode, model, prompt, tools, and options and schema where there are any."""
    keys = [*IDENTITY, *(key for key in EXTRA_IDENTITY if has(system, key))]
    try:
        return exact({key: getattr(system, key) for key in keys}, "identity")
    except (SystemDown, RunError):
        raise
    except Exception as error:      # a property is the system's own code
        raise RunError(f"the system's identity cannot be read: {type(error).__name__}: {error}") from error


FLAT = {str, float, int, bool, type(None)}


def too_deep(value) -> bool:
    """Whether a value has more than MAX_DEPTH levels of lists and dicts (a cycle has); [] has one."""
    stack = [(value, 1)]
    while stack:
        item, depth = stack.pop()
        if isinstance(item, (dict, list, tuple)):
            if depth > MAX_DEPTH:
                return True
            children = item.values() if isinstance(item, dict) else item
            stack += [(child, depth + 1) for child in children if type(child) not in FLAT and isinstance(child, (dict, list, tuple))]
    return False


def exact(value, what: str):
    """The value as JSON gives it back; OutputError when that is not the same value."""
    if too_deep(value):
        raise OutputError(f"the {what} is more than {MAX_DEPTH} levels deep")
    try:
        returned = json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise OutputError(f"JSON cannot hold the {what}: {error}") from None
    if returned != value:
        raise OutputError(f"JSON does not give the {what} back as it was (a tuple, or a key that is not text)")
    return returned


def call(system, case: dict, trial: int, clock=time.perf_counter) -> tuple:
    """(output, metadata, latency in seconds) of one call; raises what respond raises, and OutputError."""
    start = clock()
    answer = system.respond(copy.deepcopy(case), trial)     # what a system does to a case must not reach other trials
    latency_s = round(clock() - start, 6)
    if not isinstance(answer, Answer):
        raise OutputError(f"respond returned {type(answer).__name__}, not an Answer")
    metadata = exact(answer.metadata, "metadata")
    if not isinstance(metadata, dict):
        raise OutputError("the metadata is not a dict")
    try:
        return exact(answer.output, "output"), metadata, latency_s
    except OutputError as error:
        error.metadata = metadata
        raise


def error_types(error: BaseException) -> list:
    """The names of an error's classes below Exception, its own first: ["JSONDecodeError", "ValueError"]."""
    classes = type(error).__mro__
    names = [kind.__name__ for kind in classes[:classes.index(Exception)]] if Exception in classes else []
    return names or [type(error).__name__]


def message_of(error) -> str:
    """The text of an error, whatever its own code does."""
    try:
        return exact(str(error), "message")
    except Exception as fault:
        return f"its text raised {type(fault).__name__}"


def failure(system, trial, error, latency_s) -> dict:
    """The response of a trial whose call raised, with its seed and the metadata that the error carries."""
    # NotRun is the word for a planned trial without a row, CheckError for one that could not be graded: no row claims them.
    types = [name for name in error_types(error) if name not in ("", "NotRun", "CheckError")] or ["Exception"]
    metadata = {}
    try:
        if has(system, "seed_for"):
            metadata.update(exact({"seed": system.seed_for(trial)}, "seed"))
        metadata.update(exact(dict(getattr(error, "metadata", None) or {}), "metadata"))
    except Exception as fault:      # the system's own code runs here
        metadata["metadata_error"] = message_of(fault)
    return {"error": {"types": types, "message": message_of(error)}, "metadata": metadata, "latency_s": latency_s}


def call_hook(system, name, *arguments):
    """What an optional method of a system returns, None where it has none; RunError for what it should not raise."""
    if not has(system, name):
        return None
    try:
        return getattr(system, name)(*arguments)
    except (SystemDown, RunError):
        raise
    except Exception as error:      # the system's own code runs here
        raise RunError(f"{name} of {system.name} raised {raised(error)}") from error


def confirmed(system, response) -> dict:
    """The response of a trial; where a model was called, with what the system says of what answered it."""
    if "seed" not in response["metadata"] or "Rejection" in response.get("error", {"types": ()})["types"]:
        return response
    told = call_hook(system, "confirm")
    if not isinstance(told, (dict, type(None))):
        raise RunError(f"confirm of {system.name} returned {type(told).__name__}, not a dict")
    try:
        return {**response, "metadata": {**response["metadata"], **exact(told or {}, "metadata")}}
    except OutputError as error:
        raise RunError(f"confirm of {system.name}: {error}") from error


def sound(response) -> dict:
    """A response as every reader of it takes it: a clock that went back counts as no time, amounts that are none are left out."""
    metadata, latency_s = response["metadata"], response["latency_s"]
    if not 0 <= latency_s <= MOST_AMOUNT:
        response = {**response, "latency_s": MOST_AMOUNT if latency_s > 0 else 0.0}
    odd = {key: as_text(metadata[key])[:60] for key in AMOUNTS if amount_problem(key, metadata.get(key))}
    if not odd and LEFT_OUT not in metadata:
        return response
    kept = {key: value for key, value in metadata.items() if key not in odd and key != LEFT_OUT}
    return {**response, "metadata": {**kept, LEFT_OUT: odd} if odd else kept}


def attempt(system, case: dict, trial: int, clock=time.perf_counter) -> dict:
    """The response of one trial: {output, metadata, latency_s}, or {error, metadata, latency_s}.

    SystemDown passes through: it is no result."""
    call_hook(system, "ready", case)
    start = clock()
    try:
        output, metadata, latency_s = call(system, case, trial, clock)
        response = {"output": output, "metadata": metadata, "latency_s": latency_s}
    except (SystemDown, KeyboardInterrupt):
        raise
    except BaseException as error:      # the boundary of one trial: whatever a system raises is that trial's result
        response = failure(system, trial, error, round(clock() - start, 6))
    return sound(confirmed(system, response))


# Recordings and grading

def record(system, case_set: dict, splits, trials: int, include_held_out: bool = False) -> dict:
    """The recording of every planned trial, in trial-major order, held in memory."""
    cases = plan(case_set, splits, trials, include_held_out)
    responses = {case["id"]: [] for case in cases}
    for trial in range(trials):
        for case in cases:
            responses[case["id"]].append(attempt(system, case, trial))
    return {"harness_version": HARNESS_VERSION, "system": system_identity(system),
            "case_set_sha256": case_set["sha256"], "splits": list(splits), "trials": trials, "responses": responses}


def response_problem(response):
    """What is wrong with the shape of a response, or None."""
    if not isinstance(response, dict) or ("output" in response) == ("error" in response):
        return "it has not exactly one of output and error"
    latency, error = response.get("latency_s", ABSENT), response.get("error")
    if not (is_number(latency) and 0 <= latency <= MOST_AMOUNT) and not (latency is None and "error" in response):
        return "latency_s is not a number of seconds"
    metadata = response.get("metadata", {})
    if not isinstance(metadata, dict):
        return "metadata is not an object"
    for key in AMOUNTS:
        if key in metadata and amount_problem(key, metadata[key]):
            return amount_problem(key, metadata[key])
    if "output" in response:
        return "the output is nested too deeply" if too_deep(response["output"]) else None
    types = error.get("types") if isinstance(error, dict) else None
    if not (isinstance(types, list) and types and all(isinstance(name, str) and name for name in types)
            and isinstance(error.get("message"), str)):
        return "error is not {types: [names], message}"
    return None


def plan_problems(recording, case_set):
    """What keeps the plan of a recording from being graded with this case set, one text each."""
    if recording["harness_version"] != HARNESS_VERSION:
        return [f"harness_version is {json.dumps(recording['harness_version'])}, this harness is "
                f"{json.dumps(HARNESS_VERSION)}: grade it with the harness that wrote it"]
    if recording["case_set_sha256"] != case_set["sha256"]:
        return [f"it was recorded with another case set ({str(recording['case_set_sha256'])[:12]}) than "
                f"{case_set['name']} ({case_set['sha256'][:12]}): give its own with --cases"]
    if not isinstance(recording["system"], dict) or any(key not in recording["system"] for key in IDENTITY):
        return [f"system is not an object with {', '.join(IDENTITY)}"]
    if not isinstance(recording["splits"], list):
        return ["splits is not a list"]
    return [] if isinstance(recording.get("provenance", {}), dict) else ["provenance is not an object"]


def recording_problems(recording, case_set):
    """What keeps a recording from being graded with this case set, one text each."""
    keys = (*PLAN_KEYS, "responses")
    if not isinstance(recording, dict) or any(key not in recording for key in keys):
        return [f"not a recording: it needs {', '.join(keys)}"]
    problems = plan_problems(recording, case_set)
    if problems or not isinstance(recording["responses"], dict):
        return problems or ["responses is not an object"]
    cases = plan(case_set, recording["splits"], recording["trials"], include_held_out=True)
    responses = recording["responses"]
    planned = {case["id"]: case for case in cases}
    problems = [f"case {case_id} is not of the plan" for case_id in responses if case_id not in planned]
    problems += [f"case {case_id} has no responses" for case_id in planned if case_id not in responses]
    for case_id in planned:
        trials = responses.get(case_id, [None] * recording["trials"])
        if not isinstance(trials, list) or len(trials) != recording["trials"]:
            problems.append(f"case {case_id} has not {recording['trials']} trials")
        elif case_id in responses:
            found = enumerate(map(response_problem, trials))
            problems += [f"case {case_id}, trial {trial}: {problem}" for trial, problem in found if problem]
    return problems


def grade_error(case, error):
    """The verdict on a response that is an error: a refusal is judged, anything else is incomplete."""
    if "Rejection" not in error["types"]:
        return "incomplete", None, f"{error['types'][0]}: {error['message']}"
    wanted = case.get("expect_rejection")
    if wanted is None:
        return "fail", "rejection", f"refused an input that it must answer: {error['message']}"
    if error["message"] != wanted:
        return "fail", "rejection", f"refused with {json.dumps(error['message'])}, expected {json.dumps(wanted)}"
    return "pass", None, None


def grade(task, case: dict, response: dict) -> tuple:
    """(verdict, check, reason) of one response: pass, fail or incomplete; the first check that fails names it.

    A check that raises, or returns what is no reason, is no fault of the output: that trial is incomplete."""
    if "error" in response:
        return grade_error(case, response["error"])
    if "expect_rejection" in case:
        wanted = json.dumps(case["expect_rejection"])
        return "fail", "rejection", f"answered an input that it must refuse with {wanted}"
    for name, check in task.CHECKS:
        try:
            reason = check(case, response["output"])
        except Exception as error:      # a check is the task's own code
            return "incomplete", None, f"CheckError: check {name} raised {type(error).__name__}: {message_of(error)}"
        if reason is not None and not (isinstance(reason, str) and reason):
            return "incomplete", None, f"CheckError: check {name} returned {reason!r:.60}, not a reason or None"
        if reason is not None:
            return "fail", name, reason
    return "pass", None, None


def wish(expected, task, field=None) -> str:
    """What a task expects of a field of the output, or of all of it, in words."""
    compare = getattr(task, "compare", None)
    how = compare if field is None else dig(compare, field)
    return in_words(expected, how) if how or is_check(expected) else as_text(expected)


def wanted(case, task) -> str:
    """What a case asks for: "wants category account; fails on needs_human false"."""
    if "expect_rejection" in case:
        return f"must be refused: {case['expect_rejection']}"
    expect, fields = case["expect"], []
    if isinstance(expect, dict) and not is_check(expect):
        fields = [f"{field} {wish(value, task, field)}" for field, value in expect.items()]
    fails = [f"fails on {dig(one, 'field') or 'a reply'} {wish(dig(one, 'is' if dig(one, 'equals') is None else 'equals'), None)}"
             for one in case.get("failure_criteria", ())]
    return "; ".join([f"wants {', '.join(fields) or wish(expect, task)}", *fails])


def compared_words(output, case, task) -> list:
    """What of an output is compared with what: ["total 18, wanted 1.8 within 0.005"]; [] where that is all of it."""
    expect = case.get("expect")
    if isinstance(expect, dict) and isinstance(output, dict) and not is_check(expect):
        return [f"{field} {as_text(output.get(field, '(missing)'))}, wanted {wish(value, task, field)}" for field, value in expect.items()]
    if getattr(task, "extract", None) is None or not isinstance(output, str) or "expect" not in case:
        return []
    found = task.value_of(output)
    return [f"{'nothing' if found is None else as_text(found)}, wanted {wish(expect, task)}"]


def result_row(case, trial, response, verdict, check, reason) -> dict:
    """A response with its verdict as a row of a run record."""
    metadata = {**response.get("metadata", {}), "recorded_latency_s": response["latency_s"]}
    row = {"case_id": case["id"], "class": case["class"], "split": case["split"], "trial": trial, "verdict": verdict,
           "check": check, "reason": reason, "output": response.get("output"), "metadata": metadata}
    return {**row, "expects_rejection": True} if "expect_rejection" in case else row


def recording_sha256(recording: dict) -> str:
    """The hash of a recording: a line for its plan, then [case_id, trial, sha256 of the response] a trial."""
    return trials_sha256(recording, ((case_id, [sha256(canonical(one)) for one in found])
                                     for case_id, found in recording["responses"].items()))


def trials_sha256(plan: dict, hashes) -> str:
    """The hash of a recording from its plan and (case_id, [sha256 of each response]) of each case in order."""
    digest = hashlib.sha256((canonical({key: plan[key] for key in PLAN_KEYS}) + "\n").encode())
    for case_id, found in hashes:
        name = canonical(case_id)
        digest.update("".join(f'[{name},{trial},"{text}"]\n' for trial, text in enumerate(found)).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def check_task(recording, task, regrade):
    """RunError when the checks have changed since the recording was made and nobody asked to grade it anew."""
    recorded, now = recording.get("provenance", {}).get("task"), task_identity(task)
    if recorded not in (None, now) and not regrade:
        raise RunError(f"the run began with the checks {canonical(recorded)}, those of today are {canonical(now)}: "
                       "--regrade grades it with today's on purpose")


def run_manifest(recording, task, case_set, recording_hash) -> dict:
    """The manifest of a run record: who was measured on what, from the plan and provenance of a recording."""
    manifest = {"harness_version": HARNESS_VERSION, "task": task_identity(task),
                "case_set": {"name": case_set["name"], "sha256": case_set["sha256"]},
                "system": {**recording["system"], "mode": "replay"}, "splits": recording["splits"],
                "trials": recording["trials"], "recording_sha256": recording_hash}
    return {**manifest, "provenance": recording["provenance"]} if "provenance" in recording else manifest


def proof_of(recording) -> dict:
    """What lets a run record be checked by itself: the system's mode, the hash of each response, the errors by row."""
    responses = [response for trials in recording["responses"].values() for response in trials]
    return {"mode": recording["system"]["mode"], "sha256": [sha256(canonical(response)) for response in responses],
            "errors": {str(number): response["error"] for number, response in enumerate(responses)
                       if "error" in response and "NotRun" not in response["error"]["types"]}}


def replay(recording: dict, task, case_set: dict, regrade: bool = False) -> dict:
    """The run record of a recording: {"manifest": …, "results": [one graded row a trial, by case then trial]}."""
    problems = recording_problems(recording, case_set)
    if problems:
        raise RunError("; ".join(problems[:3]) + (f"; and {len(problems) - 3} more" if len(problems) > 3 else ""))
    check_task(recording, task, regrade)
    cases = plan(case_set, recording["splits"], recording["trials"], include_held_out=True)
    recording = {**recording, "responses": {case["id"]: recording["responses"][case["id"]] for case in cases}}
    return {"manifest": run_manifest(recording, task, case_set, recording_sha256(recording)),
            "results": [result_row(case, trial, response, *grade(task, case, response)) for case in cases
                        for trial, response in enumerate(recording["responses"][case["id"]])],
            "proof": proof_of(recording)}


# Run records, as they are counted

def as_text(value) -> str:
    """A JSON value for a reader: text as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def dig(value, *keys):
    """What stands under these keys of nested objects, None where a level is missing or no object."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def fingerprint(text: str) -> int:
    """64 bits that stand for a text and are never 0."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") or 1


class Record:
    """A graded run in compact form: what is counted stands in columns, one value a trial, by case then trial.

    cases is {case_id: its class}, refused those that must be refused, rows(number) the rows of one case as in a run
    record. endings has for each trial the place of its (verdict, check, reason) in table, outputs the fingerprint of
    its output (0 for none), amounts by name what its metadata tells (NaN for nothing). setups counts the trials that
    ran by what they ran on, in the order of RUNTIMES."""

    def __init__(self, manifest, cases, refused, rows):
        self.manifest, self.cases, self.refused, self.rows = manifest, cases, refused, rows
        self.trials, self.names, self.asked = manifest["trials"], list(cases), {}
        self.task, self.faults = None, []       # of its log, beside its rows
        self.table, self.places, self.setups = [NOT_RUN], {NOT_RUN: 0}, Counter()
        size = len(cases) * self.trials
        self.endings, self.outputs, self.offsets = array("I", [0]) * size, array("Q", [0]) * size, array("Q", [0]) * size
        self.amounts = {key: array("d", [0]) * size for key in AMOUNTS}
        self.hashes = bytearray(32 * size)      # of each response, while a log is read
        self.sure = bytearray(size)     # 1 where a trial has log-probabilities

    def place_of(self, ending) -> int:
        """Where a (verdict, check, reason) stands in the table, a long reason cut; 0 for what never ran."""
        if len(ending[2] or "") > REASON_LETTERS:
            ending = (*ending[:2], ending[2][:REASON_LETTERS] + "…")
        if ending[0] == "incomplete" and ending[2].partition(":")[0] == "NotRun":
            return 0
        place = self.places.setdefault(ending, len(self.table))
        if place == len(self.table):
            self.table.append(ending)
        return place

    def tell(self, index, metadata, latency) -> None:
        """Note what a trial that ran took and what it ran on; RunError where that is no amount."""
        get = metadata.get
        for key, column in self.amounts.items():
            value = latency if key == "recorded_latency_s" else get(key)
            if value is None:
                column[index] = math.nan
            elif type(value) in NUMBERS and 0 <= value <= MOST_AMOUNT:
                column[index] = value
            else:
                raise RunError(amount_problem(key, value))
        if "logprobs" in metadata:
            self.sure[index] = 1
        setup = tuple(map(get, RUNTIMES))
        try:
            self.setups[setup] += 1
        except TypeError:       # a list or an object
            self.setups[tuple(as_text(value) if isinstance(value, (list, dict)) else value for value in setup)] += 1

    def absorb(self, columns) -> bool:
        """Add what another process found of other trials; whether they were others."""
        places = list(map(self.place_of, columns["table"]))
        found, own = array("I", map(places.__getitem__, columns["endings"])), self.told()
        self.setups.update(columns["setups"])
        for mine, theirs in ((self.endings, found), (self.outputs, columns["outputs"]), (self.hashes, columns["hashes"]),
                             (self.offsets, columns["offsets"]), (self.sure, columns["sure"]), *zip(self.amounts.values(), columns["amounts"].values())):
            both = int.from_bytes(mine, "little") | int.from_bytes(theirs, "little")    # one of them is 0 everywhere
            memoryview(mine).cast("B")[:] = both.to_bytes(len(mine) * memoryview(mine).itemsize, "little")
        return self.told() == own + len(found) - found.count(0)

    def told(self) -> int:
        """How many trials are told."""
        return len(self.endings) - self.endings.count(0)

    def finish(self, absent) -> None:
        """Give the trials that nothing was told of no amounts and the hash of an absent response."""
        for index, place in enumerate(self.endings if self.told() < len(self.endings) else ()):
            if not place:
                self.hashes[32 * index:32 * index + 32] = absent
                for column in self.amounts.values():
                    column[index] = math.nan

    @cached_property
    def verdicts(self) -> bytes:
        """The place in ENDS of each trial's verdict, once all trials are told."""
        kinds = [ENDS.index("not run" if place == 0 else ending[0]) for place, ending in enumerate(self.table)]
        return bytes(map(kinds.__getitem__, self.endings))

    def of(self, number) -> slice:
        """Where the trials of a case stand in the columns."""
        return slice(number * self.trials, (number + 1) * self.trials)

    def words(self) -> dict:
        """{case_id: [verdict of each trial, "not run" where it never ran]}."""
        return {name: [ENDS[kind] for kind in self.verdicts[self.of(number)]]
                for number, name in enumerate(self.cases)}

    def count(self, verdict, where=slice(None)) -> int:
        """How many trials ended so."""
        return self.verdicts[where].count(ENDS.index(verdict))

    def matrix(self) -> list:
        """A row a case, a column a trial: 1 where it passed, else 0."""
        ones = self.verdicts.translate(bytes([1]) + bytes(255))
        return [ones[self.of(number)] for number in range(len(self.cases))]

    def endings_of(self, verdict, where=slice(None)) -> dict:
        """{(verdict, check, reason): how often} of the trials with that verdict, those that never ran included."""
        counts = Counter(self.endings[where])
        return {self.table[place]: count for place, count in counts.items() if self.table[place][0] == verdict}


def compact(record) -> Record:
    """A run record in compact form; one that is compact already as it is."""
    if isinstance(record, Record):
        return record
    rows, trials = record["results"], record["manifest"]["trials"]
    firsts = rows[::trials]
    made = Record(record["manifest"], {row["case_id"]: row["class"] for row in firsts},
                  {row["case_id"] for row in firsts if "expects_rejection" in row}, None)
    made.rows = lambda number: rows[made.of(number)]
    for index, row in enumerate(rows):
        made.endings[index] = made.place_of((row["verdict"], row["check"], row["reason"]))
        if row["output"] is not None:
            made.outputs[index] = fingerprint(canonical(row["output"]))
        if made.endings[index]:
            made.tell(index, row["metadata"], row["metadata"].get("recorded_latency_s"))
    made.finish(bytes(32))
    return made


def case_rows(record):
    """(case_id, [row of each trial]) of one case at a time, in plan order."""
    record = compact(record)
    return ((name, record.rows(number)) for number, name in enumerate(record.cases))


def untold(ending) -> tuple:
    """A (verdict, check, reason) that quotes no reply: of an error its name, and of a check's own which check it was."""
    verdict, check, reason = ending
    if ending == NOT_RUN or reason is None:
        return ending
    return verdict, check, REDACTED if verdict == "fail" else ERROR_NAME.match(reason)[0]


def redacted(record) -> Record:
    """A record that holds no input, output or reason any more, only what is counted and timed."""
    record = compact(record)
    table, rows, record.asked, record.task = record.table, record.rows, {}, None
    record.table, record.places, record.sure = [NOT_RUN], {NOT_RUN: 0}, bytearray(len(record.sure))     # tokens are replies
    places = list(map(record.place_of, map(untold, table)))
    record.endings = array("I", map(places.__getitem__, record.endings))

    def rows_of(number):
        for row in rows(number):
            told = {key: value for key, value in row["metadata"].items() if key in UNREDACTED}
            told.update({"reply": REDACTED} if "reply" in row["metadata"] else {})
            ending = dict(zip(("verdict", "check", "reason"), untold((row["verdict"], row["check"], row["reason"]))))
            yield {**row, **ending, "output": None if row["output"] is None else REDACTED, "metadata": told}
    record.rows = lambda number: list(rows_of(number))
    return record


def mistyped(value, kinds):
    """Which key of an object is missing or not of its kind, or None."""
    if not isinstance(value, dict):
        return "it is not an object"
    for key, kind in kinds.items():
        if key not in value:
            return f"{key} is missing"
        if type(value[key]) is not kind:    # a JSON true is no whole number
            return f"{key} is {json.dumps(value[key])[:60]}, not {SHAPES[kind]}"
    return None


def manifest_problem(manifest):
    """What keeps a run record with this manifest from being reported, or None."""
    problem = mistyped(manifest, MANIFEST)
    if problem:
        return f"manifest: {problem}"
    if manifest["harness_version"] != HARNESS_VERSION:
        return (f"harness_version is {manifest['harness_version']}, this report reads {HARNESS_VERSION}: "
                "grade its recording again with harness.py run")
    if manifest["splits"] != ["development"]:
        return f"splits is {json.dumps(manifest['splits'])}: only runs of the development split are reported"
    if manifest["trials"] < 1:
        return f"trials is {manifest['trials']}, not a whole number from 1 up"
    for key, kinds in (("task", NAMED), ("case_set", NAMED), ("system", {"name": str})):
        problem = mistyped(manifest[key], kinds)
        if problem:
            return f"manifest: {key}: {problem}"
    return None


def result_problem(row):
    """What is wrong with the shape of one result, or None."""
    problem = mistyped(row, ROW)
    if problem:
        return problem
    verdict, metadata = row["verdict"], row["metadata"]
    if verdict not in VERDICTS:
        return f"verdict is {json.dumps(verdict)}, not one of {', '.join(VERDICTS)}"
    for key, needed in (("check", verdict == "fail"), ("reason", verdict != "pass")):
        if key not in row or not isinstance(row[key], str if needed else type(None)):
            return f"{key} is {json.dumps(row.get(key))[:60]} with the verdict {verdict}"
    if "output" not in row or too_deep(row["output"]):
        return "output is missing or nested too deeply"
    if row.get("expects_rejection", True) is not True or row["split"] != "development":
        return "expects_rejection is not true, or the split is not development"
    for key in AMOUNTS:
        problem = amount_problem(key, metadata.get(key))
        if problem:
            return problem
    return None if "recorded_latency_s" in metadata else "metadata.recorded_latency_s is missing"


def results_problem(rows, trials):
    """What is wrong with the results of a run of that many trials a case, or None."""
    seen, first = set(), None
    for number, row in enumerate(rows):
        problem = result_problem(row)
        if problem:
            return f"results[{number}]: {problem}"
        trial = number % trials
        if trial == 0 and row["case_id"] in seen:
            return f"results[{number}]: case {row['case_id']} comes a second time"
        first = row if trial == 0 else first
        seen.add(row["case_id"])
        if (row["case_id"], row["trial"]) != (first["case_id"], trial):
            return (f"results[{number}] is trial {row['trial']} of {row['case_id']} where trial {trial} of "
                    f"{first['case_id']} belongs: a row is missing, doubled or out of place")
        if any(row.get(key) != first.get(key) for key in ("class", "expects_rejection")):
            return f"results[{number}]: class or expects_rejection is not that of the case's trial 0"
    missing = -len(rows) % trials
    if missing:
        return f"results end {missing} trial{'s' * (missing > 1)} short of the {trials} of {rows[-1]['case_id']}"
    return None if rows else "it holds no results"


def record_problem(record):
    """What keeps a value from being reported as a run record, or None."""
    if isinstance(record, dict) and "responses" in record:
        return "it is a recording: grade it with harness.py run, or give the log itself"
    problem = mistyped(record, {"manifest": dict, "results": list})
    if problem:
        return f"neither a run record nor a log: {problem}"
    return manifest_problem(record["manifest"]) or results_problem(record["results"], record["manifest"]["trials"])


def check_records(records, names) -> list:
    """The records in compact form; RunError, naming the file, for one malformed or not belonging with the first."""
    for record, name in zip(records, names):
        problem = manifest_problem(record.manifest) if isinstance(record, Record) else record_problem(record)
        if problem:
            raise RunError(f"{name}: {problem}")
    records = list(map(compact, records))
    first = records[0].manifest
    for record, name in zip(records[1:], names[1:]):
        manifest = record.manifest
        for key, what in (("task", "task"), ("case_set", "case set")):
            if manifest[key] != first[key]:
                told = [f"{part[key]['name']} {part[key]['sha256'][:12]}" for part in (manifest, first)]
                raise RunError(f"{name} is of the {what} {told[0]}, {names[0]} of {told[1]}: report them apart")
        if record.names != records[0].names:
            raise RunError(f"{name} and {names[0]} hold different cases: one of them is not whole")
    return records


# Run records: what the trials took, cost and ran on

def tally(counted) -> dict:
    """{name: how often} of (name, how often), which may repeat a name, the most frequent first."""
    counts = Counter()
    for name, count in counted:
        counts[name] += count
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def amount(record, key, where=slice(None), keep=None) -> list:
    """The amounts under one key of the trials that tell it (and that keep marks)."""
    column = record.amounts[key][where]
    return [value for value in (column if keep is None else itertools.compress(column, keep)) if value == value]


def summary(values, digits=None):
    """{trials, total, median, p90} of what was counted or timed; None where nothing was."""
    if not values:
        return None
    ordered = sorted(values)
    figures = {"total": math.fsum(values), "median": nearest_rank(ordered, 0.5), "p90": nearest_rank(ordered, 0.9)}
    return {"trials": len(values), **{name: round(value, digits) for name, value in figures.items()}}


def latency_s(record, where=slice(None)) -> dict:
    """{trials, median, p90} in seconds, over the trials that returned an output."""
    found = summary(amount(record, "recorded_latency_s", where, record.outputs[where]), 3) or {"trials": 0}
    return {key: found.get(key) for key in ("trials", "median", "p90")}


def time_spent(record):
    """The time of all trials, the share of those that did not pass, and the time for each that did."""
    spent, won = summary(amount(record, "recorded_latency_s"), 3), record.count("pass")
    if not spent:
        return None
    total = math.fsum(amount(record, "recorded_latency_s"))
    in_vain = math.fsum(amount(record, "recorded_latency_s", keep=record.verdicts))     # a pass is 0
    return {**spent, "share_not_passed": round(in_vain / total, 4) if total else None,
            "per_passed": round(total / won, 3) if won else None}


def money(tokens_in, tokens_out, prices, bought):
    """What the tokens cost at prices (in, out) a million, and each of the passed trials they bought."""
    if not prices:
        return None
    total = None
    if tokens_in and tokens_out:
        total = (tokens_in["total"] * prices[0] + tokens_out["total"] * prices[1]) / 1e6
    return {"price_in": prices[0], "price_out": prices[1], "total": total and round(total, 6),
            "per_passed": round(total / bought, 6) if total is not None and bought else None}


def costs(record, prices=None) -> dict:
    """Tokens, time and money of the trials that ran; None for what their metadata does not tell."""
    tokens_in, tokens_out = summary(amount(record, "prompt_eval_count")), summary(amount(record, "eval_count"))
    made, spent, worked, latency, load = map(record.amounts.get, (
        "eval_count", "eval_duration_s", "total_duration_s", "recorded_latency_s", "load_duration_s"))
    speeds = [tokens / time for tokens, time in zip(made, spent) if tokens == tokens and time == time and time]    # no NaN
    speed = summary(speeds, 1) or {}
    speed.pop("total", None)
    # What the server says it worked has none of our pauses and retries in it.
    timed = itertools.compress(zip(worked, latency, load), record.outputs)
    model = [(total if total == total else whole) - part for total, whole, part in timed]
    return {"tokens_in": tokens_in, "tokens_out": tokens_out,
            "tokens_per_s": speed or None,
            "time_s": time_spent(record),
            "model_s": summary([max(0.0, time) for time in model if time == time], 3),
            "load_s": summary(amount(record, "load_duration_s"), 3),
            "money": money(tokens_in, tokens_out, prices, record.count("pass"))}


def runtimes(record) -> dict:
    """{"server_version": {"0.33.0": trials}, …}: what the trials ran on, each with its count."""
    found = {key: Counter() for key in RUNTIMES}
    for setup, count in record.setups.items():
        for key, value in zip(RUNTIMES, setup):
            if value is not None:
                found[key][as_text(value)] += count
    return {key: dict(sorted(counts.items())) for key, counts in found.items() if counts}


def parallel_calls(record) -> int:
    """How many trials that reached a server ran beside others."""
    setups = [(dict(zip(RUNTIMES, setup)), count) for setup, count in record.setups.items()]
    return sum(count for setup, count in setups
               if setup["workers"] not in (None, 1) and setup["server_version"] is not None)


# Log-probabilities: how sure a model was, where its trials part, in what two models differ

def plain_token(token) -> str:
    """A token's text, bytes of half a character as lone surrogates; TypeError or ValueError for what is none."""
    if isinstance(token, list):
        return bytes(token).decode("utf-8", "surrogateescape")
    if not isinstance(token, str):
        raise TypeError
    return token if token.isascii() else token.encode("utf-8", "replace").decode("utf-8")


def log_chance(value):
    """A log-probability; ValueError for what is none."""
    if type(value) not in NUMBERS or not -MOST_AMOUNT <= value <= 0:
        raise ValueError
    return value


def told_tokens(metadata):
    """[(token, log-probability, {likely token: log-probability})] of a reply; None where a trial tells none, or what is none."""
    told = metadata.get("logprobs")
    try:
        tokens = told["tokens"]
        each = zip(tokens, told["logprobs"], told.get("tops") or [()] * len(tokens), strict=True)
        return [(plain_token(token), log_chance(value), dict(zip(
            map(plain_token, likely[::2]), map(log_chance, likely[1::2]), strict=True))) for token, value, likely in each] or None
    except (TypeError, KeyError, ValueError, AttributeError):
        return None


def as_reply(tokens) -> str:
    """The text of tokens: halves of a character that belong together are one."""
    return "".join(tokens).encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def as_bytes(token) -> str:
    """A token's text, half a character as its bytes: "\\xc3"."""
    return token.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def token_words(token) -> str:
    """A token for a reader, in quotes where white space would hide or a number mislead; None is the end of the reply."""
    text = "(end)" if token is None else as_bytes(token)
    return text if re.fullmatch(r"[^\s\d,]([^,]*[^\s,])?", text) else json.dumps(text, ensure_ascii=False)


def chance(value) -> float:
    """The probability of a log-probability, or of a sum of some, to four decimals."""
    return round(math.exp(value), 4)


def perplexity(values) -> float:
    """exp(-mean) of the log-probabilities of a reply's tokens: 1 for a model that is certain of each."""
    return math.exp(min(700.0, -mean(values)))


def middle(values):
    """The median to four decimals, None of nothing."""
    return round(statistics.median(values), 4) if values else None


def told_apart(low, high):
    """The chance that one of low is below one of high (the AUC), ties half; None with fewer than LEAST_APART of either."""
    ordered = sorted(low)
    if min(len(low), len(high)) < LEAST_APART:
        return None
    wins = sum(bisect.bisect_left(ordered, value) + bisect.bisect_right(ordered, value) for value in high)
    return round(wins / 2 / len(low) / len(high), 4)


def forks_of(replies: dict) -> list:
    """[(position, {next token, None for the end: its trials})] of all places where replies to one prompt part, the first first."""
    found, groups = [], [(0, list(replies))]
    for place, trials in groups:    # which grows
        ways = {}
        for trial in trials:
            tokens = replies[trial]
            if place < len(tokens) or len(tokens) < MOST_TOKENS:     # else its rest was not kept
                ways.setdefault(tokens[place][0] if place < len(tokens) else None, []).append(trial)
        found += [(place, ways)] * (len(ways) > 1)
        groups += [(place + 1, some) for token, some in ways.items() if token is not None and len(some) > 1]
    return found


def parted(ways, verdicts) -> float:
    """How well a fork tells trials that passed from others: the bits that it saves. A way of one trial proves nothing."""
    def bits(trials):
        won = sum(verdicts[trial] == "pass" for trial in trials)
        return -sum(count * math.log2(count / len(trials)) for count in (won, len(trials) - won) if count)
    every = [trial for trials in ways.values() for trial in trials]
    return round(bits(every) - sum(bits(some) if len(some) > 1 else bits(every) / len(every) for some in ways.values()), 9)


def fork(replies, verdicts):
    """Where the trials of a case part: the place that tells passes from failures best, and what the model thought there;
    None where all replies are equal."""
    forks = forks_of(replies)
    if not forks:
        return None
    number, (place, ways) = max(enumerate(forks), key=lambda one: (parted(one[1][1], verdicts), -one[0]))
    trial = next(trials[0] for token, trials in ways.items() if token is not None)
    taken = {token: replies[trials[0]][place][1] for token, trials in ways.items() if token is not None}
    thought = {**replies[trial][place][2], **taken}
    told = [{"token": token_words(token), "probability": chance(taken[token]) if token in taken else None,
             **{verdict: sum(verdicts[one] == verdict for one in trials) for verdict in VERDICTS}, "trials": trials}
            for token, trials in sorted(ways.items(), key=lambda one: (-len(one[1]), str(one[0])))]
    return {"after": as_reply(token for token, _, _ in replies[trial][:place]), "tokens_before": place,
            "fork": number + 1, "of": len(forks), "ways": told,
            "thought": [[token_words(token), chance(thought[token])] for token in sorted(thought, key=lambda one: -thought[one])]}


def sureness_of_case(rows, masked) -> dict:
    """What the log-probabilities of a case's rows say, and behind "" the figures that all cases are counted by."""
    replies = {row["trial"]: told_tokens(row["metadata"]) for row in rows}
    replies = {trial: tokens for trial, tokens in replies.items() if tokens}
    verdicts = {row["trial"]: row["verdict"] for row in rows}
    by_verdict, forced = {verdict: [] for verdict in VERDICTS}, {}
    for trial, tokens in replies.items():
        by_verdict[verdicts[trial]].append(perplexity([value for _, value, _ in tokens]))
        forced[trial] = [place for place, (_, value, _) in enumerate(tokens) if masked and value < UNLIKELY]
    again = [chance(math.fsum(value for place, (_, value, _) in enumerate(tokens) if place not in forced[trial]))
             for trial, tokens in replies.items()]
    ran = [row for row in rows if not (row["reason"] or "").startswith("NotRun")]
    failed = len(ran) > 1 and len(replies) == len(ran) and all(row["verdict"] == "fail" for row in ran)
    flaky = 0 < sum(row["verdict"] == "pass" for row in ran) < len(ran)
    first = Counter((token_words(replies[trial][places[0]][0]), places[0]) for trial, places in forced.items() if places)
    return {"trials": len(replies), "perplexity": {verdict: middle(by_verdict[verdict]) for verdict in ("pass", "fail")},
            "reply_probability": middle(again), "sure_of_failure": failed and middle(again) >= SURE,
            "fork": fork(replies, verdicts) if flaky else None, "": (by_verdict, forced, first)}


def sureness(record):
    """What the log-probabilities of a run say of how sure the model was; None where no trial tells any."""
    masked, cases, calls = dig(record.manifest, "system", "schema") is not None, {}, 0
    by_verdict, forced, first = {verdict: [] for verdict in VERDICTS}, [], Counter()
    for number, name in enumerate(record.names if any(record.sure) else ()):
        where = record.of(number)
        calls += 0 if name in record.refused else record.trials - record.count("not run", where)
        found = sureness_of_case(record.rows(number), masked) if any(record.sure[where]) else {"trials": 0}
        if found["trials"]:
            own, places, firsts = found.pop("")
            cases[name] = found
            for verdict, values in own.items():
                by_verdict[verdict] += values
            forced += map(len, places.values())
            first.update(firsts)
    if not cases:
        return None
    told = [{"token": token, "tokens_before": place, "replies": count} for (token, place), count in first.most_common(1)]
    return {"trials": len(forced), "of": max(calls, len(forced)),
            "perplexity": {verdict: middle(by_verdict[verdict]) for verdict in ("pass", "fail")},
            "auc": {"value": told_apart(by_verdict["pass"], by_verdict["fail"]),
                    **{verdict: len(by_verdict[verdict]) for verdict in ("pass", "fail")}},
            "sure_of_failure": [name for name, case in cases.items() if case["sure_of_failure"]],
            "forced": {"tokens": sum(forced), "replies": sum(map(bool, forced)), "first": told[0] if told else None} if masked else None,
            "cases": cases}


def percent(share) -> str:
    """A probability in words: 0.6217 → "62 %"; never certain where it is not."""
    return "under 1 %" if share < 0.01 else f"{share:.0%}".replace("%", " %") if not 0.995 <= share < 1 else "over 99 %"


def sureness_words(told) -> list:
    """How sure a model was, a text each; [] where no trial tells it."""
    if not told:
        return []
    medians = [f"{value:.2f} over {words} trials" for value, words in zip(
        map(told["perplexity"].get, ("pass", "fail")), ("passed", "failed")) if value is not None]
    auc, forced = told["auc"], told["forced"] or {"tokens": 0}
    counts = f"n {auc['pass']} and {auc['fail']}"
    words = [f"sureness: perplexity {' and '.join(medians)} (medians; log-probabilities of {told['trials']} of {told['of']} model calls)"
             if medians else f"sureness: log-probabilities of {told['trials']} of {told['of']} model calls, none graded"]
    if all(told["perplexity"].values()):
        words.append(f"  tells passed from failed replies with an AUC of {auc['value']:.2f} ({counts}; 0.5 is chance)" if auc["value"] is not None
                     else f"  too few to say how well that tells them apart ({counts}, {LEAST_APART} of each needed)")
    words += [f"  {name} always fails, and the same reply has a chance of {percent(told['cases'][name]['reply_probability'])}: the model "
              "is sure of it, more trials change nothing" for name in told["sure_of_failure"]]
    if forced["tokens"]:
        first = forced["first"]
        words.append(f"  the schema forced {forced['tokens'] / told['trials']:.1f} tokens a reply that the model gave under 1 %, the first "
                     f"mostly {first['token']}" + " at the start" * (not first["tokens_before"]) + f" ({first['replies']} of {told['trials']})"
                     + ": see whether the prompt shows the format" * (2 * first["replies"] > told["trials"]))
    return words


def fork_words(fork) -> list:
    """Where the trials of a case part, what the model thought there, and how those that went each way ended."""
    before = fork["after"][-40:]
    thought = ", ".join(f"{token} {percent(share)}" for token, share in fork["thought"][:3])
    which = f" (fork {fork['fork']} of {fork['of']})" if fork["fork"] > 1 else ""
    words = [f"parts after {'…' * (len(fork['after']) > 40)}{before or 'nothing'}   {thought}{which}"]
    for way in fork["ways"]:
        ends = ", ".join(f"{way[verdict]} {word}" for verdict, word in zip(VERDICTS, ("passed", "failed", "incomplete")) if way[verdict])
        share = "" if way["probability"] is None else f" {percent(way['probability'])}"
        words.append(f"  {way['token']}{share}: {ends}, trial{'s' * (len(way['trials']) > 1)} {' '.join(map(str, way['trials']))}")
    return words


def kl_divergence(first: dict, second: dict) -> float:
    """How far the second {token: log-probability} is from the first, in nats: the Kullback-Leibler divergence over the tokens
    that both list, all others as one, which is at most the true one."""
    shared = sorted(first.keys() & second.keys())
    rest = [max(0.0, 1 - math.fsum(math.exp(chances[token]) for token in shared)) for chances in (first, second)]
    told = [math.exp(first[token]) * (first[token] - second[token]) for token in shared]
    # What four decimals leave of a rest that is none must not make the ratio.
    return max(0.0, math.fsum(told) + (rest[0] * math.log(rest[0] / max(rest[1], REST)) if rest[0] > REST else 0.0))


def cut_alike(one, other):
    """Whether two replies are cut into tokens at the same places as far as their texts agree; None where that shows nothing."""
    alike = len(os.path.commonprefix(["".join(one), "".join(other)]))
    ends = [{end for end in itertools.accumulate(map(len, tokens)) if end < alike} for tokens in (one, other)]
    return ends[0] == ends[1] if any(ends) else None


def pair_of_replies(one, other) -> dict:
    """Two replies to one prompt: {identical, alike (in how they are cut), parted (the number of equal tokens), kl (of each of
    these), same_favourite (of each whose likely tokens are known), perplexity of both}."""
    texts = [[token for token, _, _ in tokens] for tokens in (one, other)]
    parted = next((place for place, (a, b) in enumerate(zip(*texts)) if a != b), min(map(len, texts)))
    listed = [[{**likely, token: value} for token, value, likely in tokens[:parted]] for tokens in (one, other)]
    likely = [(a, b) for (_, _, a), (_, _, b) in zip(one[:parted], other[:parted]) if a and b]
    return {"identical": "".join(texts[0]) == "".join(texts[1]), "alike": cut_alike(*texts), "parted": parted,
            "kl": list(map(kl_divergence, *listed)), "same_favourite": [max(a, key=a.get) == max(b, key=b.get) for a, b in likely],
            "perplexity": [perplexity([value for _, value, _ in tokens]) for tokens in (one, other)]}


def told_of_pairs(pairs) -> dict:
    """The figures of some pairs of replies."""
    kl, favourites = ([value for pair in pairs for value in pair[key]] for key in ("kl", "same_favourite"))
    return {"trials": len(pairs), "identical": sum(pair["identical"] for pair in pairs),
            "parted_at": middle([pair["parted"] + 1 for pair in pairs if not pair["identical"]]), "tokens": len(kl),
            "divergence": round(mean(kl), 6) if kl else None, "largest": round(max(kl), 6) if kl else None,
            "same_favourite": sum(favourites), "favourites": len(favourites),
            "perplexity": [middle(values) for values in zip(*(pair["perplexity"] for pair in pairs))]}


def divergence(records):
    """In what the token probabilities of two systems differ on the trials of the same numbers that both tell them of, in all and
    by case, the largest first; None where there are none. Of other tokenisers only which replies are identical."""
    found = {}
    for number, name in enumerate(records[0].names if all(any(record.sure) for record in records) else ()):
        if all(any(record.sure[record.of(number)]) for record in records):
            told = zip(*([told_tokens(row["metadata"]) for row in record.rows(number)] for record in records))
            found[name] = [pair_of_replies(*both) for both in told if all(both)]
    cases = {name: told_of_pairs(pairs) for name, pairs in found.items() if pairs}
    pairs = [pair for some in found.values() for pair in some]
    if not pairs:
        return None
    alike, own = [pair["alike"] for pair in pairs if pair["alike"] is not None], ("trials", "identical", "perplexity")
    if 2 * sum(alike) < len(alike):
        return {"tokenisers_differ": True, **{key: told_of_pairs(pairs)[key] for key in own}}
    means = [case["divergence"] for case in cases.values() if case["divergence"] is not None]
    half = t_quantile(len(means) - 1) * math.sqrt(mean_variance(means)) if len(means) > 1 else None
    ordered = sorted(cases, key=lambda name: -(cases[name]["divergence"] or 0))
    return {"tokenisers_differ": False, **told_of_pairs(pairs), "divergence": round(mean(means), 6) if means else None,
            "interval": [round(max(0.0, mean(means) + side), 6) for side in (-half, half)] if half is not None else None,
            "cases": {name: cases[name] for name in ordered}}


def divergence_words(told, a, b) -> list:
    """In what the token probabilities of two systems differ, a text each; [] where they tell nothing."""
    if not told:
        return []
    words = [f"replies identical in {told['identical']} of {told['trials']} trials with log-probabilities of both"]
    if told["tokenisers_differ"]:
        return words + ["the tokens cannot be compared: the two cut the same text into other tokens"]
    if told["parted_at"] is not None:
        words[0] += f"; the others part at token {told['parted_at']:g} (median)"
    if told["divergence"] is not None:
        counted = [case["divergence"] for case in told["cases"].values() if case["divergence"] is not None]
        sure = f"95 % interval {told['interval'][0]:.4f} to {told['interval'][1]:.4f}" if told["interval"] else "no interval of one case"
        words.append(f"up to there {b} diverges from {a} by {told['divergence']:.4f} nats a token (mean of {len(counted)} case{'s' * (len(counted) != 1)}, {sure}), "
                     f"at most {told['largest']:.4f}: a lower bound, since tokens that not both list count as one")
        most = [f"{name} {case['divergence']:.4f}" for name, case in told["cases"].items() if case["divergence"]]
        words += [f"it diverges most in {', '.join(most[:5])}"] * bool(most)
    if told["favourites"]:
        words.append(f"the likeliest token is the same at {told['same_favourite']} of {told['favourites']} tokens")
    return words + [f"perplexity (median): {a} {told['perplexity'][0]:.2f}, {b} {told['perplexity'][1]:.2f}"]


# What is claimed, and what the trials say

def identity() -> dict:
    """Which harness this is: the version of its formats and the hash of its source."""
    source = own_file(HERE / "harness.py").replace(b"\r\n", b"\n")
    return {"version": HARNESS_VERSION, "sha256": hashlib.sha256(source).hexdigest()}


def outputs_sha256(record) -> str:
    """The hash over the cases, the trials a case and 8 bytes of each output's hash (0 for none), by case then trial."""
    outputs = array("Q", record.outputs)
    if sys.byteorder == "little":
        outputs.byteswap()
    return hashlib.sha256(canonical([record.names, record.trials]).encode() + outputs.tobytes()).hexdigest()


def differing(claimed, rebuilt, path=""):
    """(JSON path, claimed, rebuilt) of each place where two JSON values differ; ABSENT is what one of them has not."""
    if type(claimed) is type(rebuilt) is dict:
        for key in [*claimed, *(key for key in rebuilt if key not in claimed)]:
            step = f".{key}" if re.fullmatch(r"[\w-]+", key) else f"[{json.dumps(key)}]"
            yield from differing(claimed.get(key, ABSENT), rebuilt.get(key, ABSENT), f"{path}{step}".lstrip("."))
    elif type(claimed) is type(rebuilt) is list:
        for place, pair in enumerate(itertools.zip_longest(claimed, rebuilt, fillvalue=ABSENT)):
            yield from differing(*pair, f"{path}[{place}]")
    elif type(claimed) is not type(rebuilt) or claimed != rebuilt:
        yield path, claimed, rebuilt


def excerpts(old, new) -> tuple:
    """Both values that differ, shown; where they are long, from a little before their first difference."""
    texts = ["nothing" if value is ABSENT else json.dumps(value, ensure_ascii=False) for value in (old, new)]
    if max(map(len, texts)) <= 60:
        return tuple(texts)
    first = len(os.path.commonprefix(texts))
    start = max(0, first - 20)
    return tuple(("…" if start else "") + text[start:start + 57] + ("…" if len(text) > start + 57 else "")
                 for text in texts)


def claim(kind, where, claimed, rebuilt) -> tuple:
    """A finding: its kind, and where it is with both values."""
    return kind, "{}: claimed {}, rebuilt {}".format(where, *excerpts(claimed, rebuilt))


def findings(claimed, rebuilt, path="") -> list:
    """What differs between a claimed report, run record or row of one and the rebuilt one: [(kind, text)], the kind one of FINDINGS."""
    return [claim(next(kind for kind, paths in FINDINGS.items() if re.fullmatch(paths, path, re.DOTALL)), path, *values)
            for path, *values in differing(claimed, rebuilt, path)]


def response_in(row, error) -> dict:
    """The response that a row of a run record was graded from, error being that of a trial without an output."""
    if (row["verdict"], row["check"], row["reason"]) == NOT_RUN and error is None:
        return {"error": {"types": ["NotRun"], "message": NOT_RUN[2].partition(": ")[2]}, "latency_s": None}
    metadata = dict(row["metadata"])
    latency_s = metadata.pop("recorded_latency_s")
    return {**({"output": row["output"]} if error is None else {"error": error}), "metadata": metadata, "latency_s": latency_s}


def row_findings(number, row, proof, case, task):
    """Findings: where a row of a run record is not what its hash and the checks say."""
    response, where = response_in(row, proof["errors"].get(str(number))), f"results[{number}]"
    problem = response_problem(response)
    if problem:
        yield "MALFORMED", f"{where}: {problem}"
        return
    found = sha256(canonical(response))
    if proof["sha256"][number] != found:
        yield claim("HASH_MISMATCH", f"proof.sha256[{number}]", proof["sha256"][number], found)
    yield from findings(row, result_row(case, row["trial"], response, *grade(task, case, response)), where)[:1]


def record_findings(record, task, case_set) -> list:
    """Findings: what a run record says that does not follow from its own outputs and errors."""
    problem = mistyped(record, {"manifest": dict, "results": list}) or manifest_problem(record["manifest"])
    if problem:
        return [("MALFORMED", problem)]
    manifest, rows, proof = record["manifest"], record["results"], record.get("proof")
    for key, now in (("task", task_identity(task)), ("case_set", {key: case_set[key] for key in ("name", "sha256")})):
        if manifest[key] != now:
            raise UsageError(f"the run record's {key.replace('_', ' ')} is {canonical(manifest[key])}, not {canonical(now)}: give its "
                           f"own with --{'task' if key == 'task' else 'cases'}")
    cases = plan(case_set, manifest["splits"], manifest["trials"])
    held = {canonical([dig(row, "case_id"), dig(row, "trial")]) for row in rows}
    absent = [("MISSING_TRIAL", f"results: trial {trial} of case {case['id']} is not there") for case in cases
              for trial in range(manifest["trials"]) if canonical([case["id"], trial]) not in held]
    problem = not absent and (results_problem(rows, manifest["trials"]) or mistyped(proof, {"sha256": list, "errors": dict}))
    if absent or problem or len(proof["sha256"]) != len(rows):
        return absent or [("MALFORMED", problem or "proof: it has not a hash for each row")]
    by_id, found = {case["id"]: case for case in cases}, []
    for number, row in enumerate(rows):
        found += row_findings(number, row, proof, by_id[row["case_id"]], task)
    recorded = {**manifest, "system": {**manifest["system"], "mode": proof.get("mode")},
                "case_set_sha256": case_set["sha256"]}
    made = trials_sha256(recorded, ((case["id"], proof["sha256"][start:start + manifest["trials"]]) for case, start in zip(
        cases, range(0, len(rows), manifest["trials"]))))
    if made != manifest["recording_sha256"]:
        found.append(claim("HASH_MISMATCH", "manifest.recording_sha256", manifest["recording_sha256"], made))
    return found


def plan_findings(record) -> list:
    """Findings: trials of a record that were not asked of the model, or not with the temperature, that its plan names."""
    record, found = compact(record), []
    model = as_text(dig(record.manifest, "system", "model"))
    pinned = re.search(r"@([0-9a-f]{12})\Z", model)
    for key, planned in (("digest", pinned and pinned[1]), ("temperature", dig(record.manifest, "system", "options", "temperature"))):
        seen, place = Counter(), list(RUNTIMES).index(key)
        for setup, count in record.setups.items():
            seen[setup[place]] += count
        del seen[None]
        usual = planned if planned is not None or not seen else seen.most_common(1)[0][0]
        found += [("PLAN_DIVERGED", f"metadata.{key} is {brief(value)} in {count} of {sum(seen.values())} trials, not {brief(usual)}")
                  for value, count in seen.items() if value != usual]
    return found


def told_findings(found) -> list:
    """The lines that tell findings, the first few of each kind; figures that must differ are no fabrication."""
    why = {"OTHER_VERSION": "another version made them", "HASH_MISMATCH": "they are of other trials",
           "MISSING_TRIAL": "they are of other trials", "FABRICATED_VERDICT": "they count other verdicts"}
    reasons = [why[kind] for kind, text in found if kind in why and "_sha256" not in text]
    figures = [one for one in found if one[0] == "FABRICATED_AGGREGATE" and reasons]
    found = [one for one in found if one not in figures]
    lines = []
    for kind in FINDINGS:
        some = [text for name, text in found if name == kind]
        lines += [f"{kind}  {text}" for text in some[:MOST_TOLD]]
        if len(some) > MOST_TOLD:
            lines.append(f"{kind}  and {len(some) - MOST_TOLD} more, {len(some)} in all")
    return lines + ([f"beside these {len(figures)} figures differ: {reasons[0]}"] if figures else [])


def remaking_words(options, known, runs) -> list:
    """The command line that makes a report of these runs with the options that it claims; RunError for unknown ones."""
    words = [*map(as_word, runs)]
    if not isinstance(options, dict) or not set(options) <= {*known, "no_worse_than"}:
        raise RunError("options: they are not those of a report")
    for name, value in options.items():
        flag = f"--{name.replace('_', '-')}"
        if value is True:
            words += [f"{flag}={words.pop(len(runs) - 1)}"] if name == "no_worse_than" else [flag]
        else:
            words += [f"{flag}={one}" for one in (value if isinstance(value, list) else [value])]
    return words


def file_sha256(path) -> str:
    """The sha256 of a file's bytes, as 64 hex digits."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def as_listed(paths, sources) -> list:
    """The files in the order in which a report lists their hashes, those that it does not list in the places left over."""
    given = [(file_sha256(path), path) for path in paths]
    listed = []
    for source in sources:
        same = next((one for one in given if one[0] == dig(source, "sha256")), None)
        listed.append(same and given.pop(given.index(same))[1])
    return [path or given.pop(0)[1] for path in listed]


# Signatures, which OpenSSH makes and checks

def ssh_keygen(*words, data=b"") -> tuple:
    """(whether it succeeded, what it said) of a run of ssh-keygen; RunError where there is none or it does not end.

    Without a terminal it may ask nobody for a passphrase, so that it fails and does not wait."""
    import subprocess       # which only a signature needs
    seen = sys.stdin is not None and sys.stdin.isatty()
    environment = os.environ if seen else {**os.environ, "SSH_ASKPASS_REQUIRE": "never"}
    try:
        process = subprocess.Popen(["ssh-keygen", *map(str, words)], stdin=None if seen and not data else subprocess.PIPE,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment,
                                   start_new_session=not seen)
    except OSError as error:
        raise RunError(f"ssh-keygen cannot be started ({error.strerror}): signatures need OpenSSH 8.2 or later") from None
    with process:
        try:
            out, err = process.communicate(data or None, timeout=SIGN_S)
        except BaseException as error:
            process.kill()
            if isinstance(error, subprocess.TimeoutExpired):
                for pipe in (process.stdin, process.stdout, process.stderr):
                    pipe and pipe.close()       # a child of it may hold them on
                raise RunError(f"ssh-keygen did not end within {SIGN_S:g} s") from None
            raise
    said = [line for line in (out + b"\n" + err).decode("utf-8", "replace").splitlines() if line.strip("@ ")]
    return process.returncode == 0, said


def sign(key, path) -> None:
    """Write PATH.sig, the signature of a file; RunError, and no such file, where ssh-keygen makes none that holds."""
    import tempfile
    data = Path(path).read_bytes()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "report")
        file.write_bytes(data)
        done, said = ssh_keygen("-Y", "sign", "-f", key, "-n", NAMESPACE, file)
        made = Path(f"{file}.sig")
        text = made.read_text("ascii", "replace") if made.is_file() else ""
        if done and text.startswith(SIGNATURE):
            done, said = ssh_keygen("-Y", "check-novalidate", "-n", NAMESPACE, "-s", made, data=data)
    if not done or not text.startswith(SIGNATURE):
        why = next((line for line in said if "too open" in line), said[-1] if said else "it says nothing")
        raise RunError(f"{path} is not signed: ssh-keygen made no signature with --sign {key}: {why}")
    write_texts({f"{path}.sig": text})


def signer_of(data: bytes, signature, allowed, who=None) -> tuple:
    """(what ssh-keygen says of a good signature by one of the allowed signers, None), or (None, why there is none)."""
    for path in (signature, allowed):
        if not os.path.isfile(path):
            return None, f"{path}: there is no such file"
    names = [who]
    if who is None:
        done, said = ssh_keygen("-Y", "find-principals", "-s", signature, "-f", allowed)
        names = [name for line in said for name in line.split(",")] if done else []
    for name in names:
        done, said = ssh_keygen("-Y", "verify", "-f", allowed, "-I", name, "-n", NAMESPACE, "-s", signature, data=data)
        if done:
            return said[0], None
    told = f" of {who}" if who is not None else " of any of its signers"
    return None, f"{signature} is no good signature{told} by {allowed}" + (f": {said[-1]}" if said else "")


def verify(path, remake, signers=None, signer=None) -> int:
    """Print each difference between a claimed report or run record and what it claims to be made of, or MATCH.

    remake(claimed) makes it again: (what it should be, findings in what it is made of). 1 where there is a finding."""
    data, found, signed = Path(path).read_bytes(), [], None
    try:
        claimed = parse_json(data.decode("utf-8-sig"))
    except ValueError:
        claimed = None
    try:
        if not isinstance(claimed, dict) or too_deep(claimed):
            raise RunError(f"{path}: this is neither a report nor a run record as JSON")
        made, found = remake(claimed)
        found += findings(claimed, parse_json(canonical(made))) if made else []
    except UsageError:
        raise       # what is missing is not in the claim
    except (RunError, CaseError) as error:
        found.append(("MALFORMED", str(error)))
    if signers:
        signed, why = signer_of(data, f"{path}.sig", signers, signer)
        found += [] if signed else [("UNSIGNED", why)]
    print(*map(printable, told_findings(found) or ["MATCH", *([signed] if signed else [])]), sep="\n")
    return 1 if found else 0


# Statistics: the pass rate and its intervals

def mean(values) -> float:
    return math.fsum(values) / len(values)


def mean_variance(values) -> float:
    """The variance of the mean of the values, from their sample variance; 0.0 for fewer than two."""
    if len(values) < 2:
        return 0.0
    middle = mean(values)
    offsets = [value - middle for value in values]
    return math.fsum(map(operator.mul, offsets, offsets)) / (len(values) - 1) / len(values)


def sums(matrix) -> tuple:
    """(how many trials of each case passed, how many cases each trial passed) of a pass matrix."""
    return list(map(sum, matrix)), list(map(sum, zip(*matrix)))


def t_quantile(freedom: int) -> float:
    """Student's 97.5 % quantile, by its expansion around the normal one from 5 degrees of freedom on."""
    if freedom <= len(T_QUANTILES):
        return T_QUANTILES[freedom - 1]
    return (Z + (Z ** 3 + Z) / (4 * freedom) + (5 * Z ** 5 + 16 * Z ** 3 + 3 * Z) / (96 * freedom ** 2)
            + (3 * Z ** 7 + 19 * Z ** 5 + 17 * Z ** 3 - 15 * Z) / (384 * freedom ** 3))


def wilson(share: float, trials: float) -> tuple:
    """Wilson's 95 % interval (1927) of a share seen in that many trials: (0.7, 10) → 0.397, 0.892."""
    scale = 1 + Z * Z / trials
    middle = (share + Z * Z / (2 * trials)) / scale
    half = Z * math.sqrt(share * (1 - share) / trials + Z * Z / (4 * trials * trials)) / scale
    return (0.0 if share == 0 else max(0.0, middle - half), 1.0 if share == 1 else min(1.0, middle + half))


def effective_trials(means: list, trials: int):
    """How many independent trials a mean of group means is worth (Korn & Graubard 1998); None for one group."""
    groups, middle = len(means), mean(means)
    if groups < 2:
        return None
    if middle in (0, 1):
        return float(groups)
    variance = mean_variance(means)
    if variance == 0:
        return float(trials)
    correction = (t_quantile(trials - 1) / t_quantile(groups - 1)) ** 2
    return min(float(trials), middle * (1 - middle) / variance * correction)


def rounded(interval):
    """An interval as the report gives it, [low, high]; None for none."""
    return interval and [round(limit, 4) for limit in interval]


def same_cases(each: list, cases: int):
    """The interval of the pass rate of the same cases for new trials, from how many cases each trial passed.

    The seed of a trial is the same for every case, so a lucky trial is lucky for several of them."""
    trials = effective_trials([count / cases for count in each], cases * len(each))
    return trials and wilson(sum(each) / cases / len(each), trials)


def beta_share(x: float, a: float, b: float) -> tuple:
    """(the share of the beta distribution below x, its density there): DLMF 8.17.22 by Lentz's method, modified."""
    scale = math.exp(a * math.log(x) + b * math.log1p(-x) + math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b))
    beyond = x > (a + 1) / (a + b + 2)      # there the fraction of the other side converges sooner
    a, b, y = (b, a, 1 - x) if beyond else (a, b, x)
    c, d = 1.0, 1 / (1 - (a + b) * y / (a + 1) or 1e-300)
    value, step, change = d, 1, 2.0
    while abs(change - 1) > 1e-14 and step < 100000:
        odd = a + 2 * step
        term = step * (b - step) * y / ((odd - 1) * odd)
        c, d = 1 + term / c or 1e-300, 1 / (1 + term * d or 1e-300)
        value *= c * d
        term = -(a + step) * (a + b + step) * y / (odd * (odd + 1))
        c, d = 1 + term / c or 1e-300, 1 / (1 + term * d or 1e-300)
        change = c * d
        value, step = value * change, step + 1
    share = scale * value / a
    return 1 - share if beyond else share, scale / x / (1 - x)


def beta_quantile(share: float, a: float, b: float) -> float:
    """Where the beta distribution of these two parameters reaches the share, to 1e-9, by safeguarded Newton steps."""
    low, high, middle = 0.0, 1.0, a / (a + b)
    x = middle + (2 * share - 1) * 2 * math.sqrt(middle * (1 - middle) / (a + b + 1))
    while high - low > 1e-11:
        if not low < x < high:
            x = (low + high) / 2
        below, density = beta_share(x, a, b)
        low, high = (x, high) if below < share else (low, x)
        step = (below - share) / density if density else 1.0
        x -= step
        if abs(step) < 1e-11:
            break
    return min(max(x, low), high)


def lower_limit(cases: int, total: float, squares: float) -> float:
    """The lower limit of the mean over cases, from the sum and the sum of squares of what was found of each.

    Beside the cases stands one more, the worst that was not drawn: 0. With weights of all drawn evenly, it is
    the 2.5 % quantile of their mean (Gaffke 2005; Phan, Thomas & Learned-Miller 2021), of which the beta
    distribution of the same mean and variance is taken: [1] * 9 → 0.6637."""
    if total < 1e-9:
        return 0.0
    squares = min(max(squares, total * total / cases), total)       # whatever rounding made of them
    middle = total / (cases + 1)
    variance = (squares - total * middle) / ((cases + 1) * (cases + 2))
    concentration = middle * (1 - middle) / variance - 1
    return beta_quantile(0.025, middle * concentration, (1 - middle) * concentration)


def bound(cases: int, total: float, squares: float) -> tuple:
    """The limits of the mean over new cases that could be anything, whatever their trials leave open."""
    return (lower_limit(cases, total, squares),
            1 - lower_limit(cases, cases - total, cases - 2 * total + squares))


def squared(share, interval) -> list:
    """The squared distances of a share from the limits of an interval."""
    return [(share - limit) ** 2 for limit in interval]


def trial_factors(share, outer, same, trials) -> tuple:
    """By how much what trials share widens the bound for new cases below and above (Zou & Donner 2008)."""
    if not same:
        return 1.0, 1.0
    parts = zip(squared(share, outer), squared(share, same), squared(share, wilson(share, trials)))
    return tuple(math.sqrt(1 + max(0.0, seen - alone) / around) if around else 1.0 for around, seen, alone in parts)


def widened(middle, outer, factors) -> tuple:
    """Limits around a middle, moved away from it by a factor each, within [0, 1]."""
    return (max(0.0, middle - factors[0] * (middle - outer[0])), min(1.0, middle + factors[1] * (outer[1] - middle)))


def new_cases(by_case: list, each: list):
    """(the bound of the pass rate for new cases, the factors by which trials widen it); None for one case."""
    cases, n = len(by_case), len(each)
    if cases < 2:
        return None
    share = sum(by_case) / cases / n
    outer = bound(cases, sum(by_case) / n, sum(count * count for count in by_case) / n / n)
    return outer, trial_factors(share, outer, same_cases(each, cases), cases * n)


def pass_rate(by_case: list, each: list) -> dict:
    """The pass rate and its intervals for new trials and for new cases, and what would narrow the latter.

    by_case says how many trials of each case passed, each how many cases each trial passed."""
    cases, n = len(by_case), len(each)
    share, same, new, narrows = sum(by_case) / cases / n, same_cases(each, cases), new_cases(by_case, each), None
    worth = effective_trials([count / cases for count in each], cases * n)
    if new:
        outer, factors = new
        new, apart = widened(share, outer, factors), squared(share, outer)
        whole = sum(factor ** 2 * part for factor, part in zip(factors, apart))
        narrows = "cases" if 2 * sum(apart) > whole else "trials"
    return {"value": round(share, 4), "same_cases": rounded(same), "new_cases": rounded(new),
            "effective_trials": {"same_cases": worth and round(worth, 2)}, "narrowed_by": narrows}


@dataclass(frozen=True)
class Planning:
    """How wide the intervals of a run of another size would be, from the passes of a run with two cases and trials or more.

    w is one trial's own variance, b that between cases, a that between trials."""
    p: float
    w: float
    b: float
    a: float
    cases: int
    trials: int

    @classmethod
    def of(cls, by_case: list, each: list):
        """What a run tells whose cases and trials passed so often; None for one case or one trial."""
        m, n = len(by_case), len(each)
        if min(m, n) < 2:
            return None
        shares, by_trial = [count / n for count in by_case], [count / m for count in each]
        w = mean([share * (1 - share) for share in shares]) * n / (n - 1)
        return cls(sum(each) / m / n, w, max(0.0, m * mean_variance(shares) - w / n),
                   max(0.0, n * mean_variance(by_trial) - w / m), m, n)

    def same(self, m: int, n: int) -> tuple:
        """The interval for the same m cases with n trials each."""
        total, p = m * n, self.p
        variance = self.a / n + self.w / total
        worth = total
        if p in (0, 1):
            worth = n
        elif variance:
            worth = min(total, p * (1 - p) / variance * (t_quantile(total - 1) / t_quantile(n - 1)) ** 2)
        return wilson(p, worth)

    def new(self, m: int, n: int) -> tuple:
        """The interval for new cases from m cases with n trials each."""
        p = self.p
        between = min(self.b + self.w / n, p * (1 - p) * m / (m - 1))
        outer = bound(m, m * p, (m - 1) * between + m * p * p)
        return widened(p, outer, trial_factors(p, outer, self.same(m, n), m * n))

    def trials_for(self, half: float):
        """The fewest trials of the same cases whose interval is as narrow; None where MOST_PLANNED do not do."""
        return fewest(lambda n: half_width(self.same(self.cases, n)) <= half)

    def cases_for(self, half: float, trials=None):
        """The fewest cases whose interval for new cases is as narrow; None where MOST_PLANNED do not do."""
        return fewest(lambda m: half_width(self.new(m, trials or self.trials)) <= half)

    def size_for(self, half: float):
        """(cases, trials) of about the smallest run with more trials a case whose interval for new cases is as narrow, or None."""
        best, trials = None, self.trials
        while trials < 100 * self.trials:
            trials = max(trials + 1, trials * 9 // 8)
            cases = self.cases_for(half, trials)
            if best and cases and cases * trials >= math.prod(best):
                break
            best = (cases, trials) if cases else best
        return best


def half_width(interval) -> float:
    return (interval[1] - interval[0]) / 2


def fewest(is_enough):
    """The smallest number from 2 to MOST_PLANNED that is enough, where every larger one is too; None where none is."""
    low, high = 2, MOST_PLANNED
    if not is_enough(high):
        return None
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle + 1, high)
    return low


def how_often(won: int, ran: int) -> str:
    """How often a case passed in the trials that ran: "sometimes", "never", "always"; "not run" where none did."""
    return "not run" if not ran else "never" if not won else "always" if won == ran else "sometimes"


def outline(matrix: list, absent: list, refused: list) -> dict:
    """What a headline tells: how steady the cases are, the pass rate of all trials and of those that reach a model.

    A row of matrix is a case, a 1 in it a trial that passed; absent says how many trials of each case never ran,
    refused whether it never reaches a model. While a trial has not run the rates are None."""
    called = [(row, gone) for row, gone, never in zip(matrix, absent, refused) if not never]
    rows = [row for row, _ in called]
    counts, each = sums(matrix)
    calls = {"trials": sum(len(row) - gone for row, gone in called), "pass": sum(map(sum, rows)), "rate": None}
    whole = not any(absent)
    if whole and rows:
        rate = pass_rate(*sums(rows))
        calls.update(rate=rate.pop("value"), **rate)
    often = Counter(how_often(won, len(each) - gone) for won, gone in zip(counts, absent))
    return {"cases": len(matrix), "trials_per_case": len(each),
            "steadiness": {word: often[word] for word in ("always", "sometimes", "never", "not run")},
            "pass_rate": pass_rate(counts, each) if whole else None,
            "model_calls": {**calls, "cases": len(rows)},
            "passed_per_trial": each if whole else None}


# Statistics: pass@k and pass^k

def powers(n, c):
    """[C(c,k) / C(n,k) for k = 1 … n]: the chance that k of n trials, c of them passed, all passed."""
    walk = list(itertools.accumulate(map(operator.truediv, range(c, 0, -1), range(n, n - c, -1)), operator.mul))
    return walk + [0.0] * (n - c)


def pass_power_k(n: int, c: int, k: int) -> float:
    """pass^k of a case with c of n trials passed: C(c,k) / C(n,k) (Yao et al. 2024)."""
    if not (1 <= k <= n and 0 <= c <= n):
        raise ValueError(f"n {n}, c {c}, k {k}: k goes from 1 to n, c from 0 to n")
    return powers(n, c)[k - 1]


def pass_at_k(n: int, c: int, k: int) -> float:
    """pass@k of a case with c of n trials passed: 1 − C(n−c,k) / C(n,k) (Chen et al. 2021, eq. 1)."""
    return 1 - pass_power_k(n, n - c, k)


def nearest_rank(values, share: float):
    """The smallest of the values that at least that share of them does not exceed; None when there are none."""
    ordered = sorted(values)
    rank = math.ceil(round(share * len(ordered), 9))    # 0.07 * 100 is 7.000000000000001
    return ordered[max(rank, 1) - 1] if ordered else None


def chances(n, counts):
    """For k = 1 … n the sum over cases, and that of squares, of the chance that k trials all are counted ones."""
    alike = Counter(counts)
    weights, walks = list(alike.values()), [powers(n, count) for count in alike]
    for values in zip(*walks):
        weighted = list(map(operator.mul, values, weights))
        yield math.fsum(weighted), math.fsum(map(operator.mul, weighted, values))


def curve_values(n: int, counts: list) -> list:
    """[(pass@k, pass^k) for k = 1 … n], averaged over cases of n trials whose pass counts are given."""
    none_passes, cases = chances(n, [n - count for count in counts]), len(counts)
    return [(1 - none / cases, every / cases) for (none, _), (every, _) in zip(none_passes, chances(n, counts))]


def exact_curve(n: int, counts: list) -> dict:
    """The curve unrounded, since what is printed is to be rounded once: {"1": {pass_at_k, pass_power_k}, …}."""
    return {str(k): {"pass_at_k": at, "pass_power_k": power}
            for k, (at, power) in enumerate(curve_values(n, counts), start=1)}


def curve(n: int, counts: list) -> dict:
    """The curve to 4 decimals: {"1": {pass_at_k, pass_power_k}, …}."""
    return {k: {name: round(value, 4) for name, value in values.items()}
            for k, values in exact_curve(n, counts).items()}


def band_ks(n: int) -> list:
    """The k that get a band: every one to 100, beyond that some 60 at even distances of their logarithm."""
    spread = {round(100 * (n / 100) ** (step / 60)) for step in range(61)} if n > 100 else {n}
    return sorted({*range(1, min(n, 100) + 1), *spread, *(k for k in FEW_K if k < n)})


def curve_band(by_case: list, each: list):
    """{"k": {pass_at_k: [low, high], pass_power_k: [low, high]}} for new cases, in order along k; None for one case."""
    found, cases, n = new_cases(by_case, each), len(by_case), len(each)
    if not found:
        return None
    ks, band, at, power = set(band_ks(n)), {}, (0.0, 0.0), (1.0, 1.0)
    walks = zip(chances(n, [n - count for count in by_case]), chances(n, by_case))
    for k, (none_passes, all_pass) in enumerate(walks, start=1):
        if k in ks:
            low, high = bound(cases, *none_passes)
            limits_at = widened(1 - none_passes[0] / cases, (1 - high, 1 - low), found[1])
            limits_power = widened(all_pass[0] / cases, bound(cases, *all_pass), found[1])
            at, power = tuple(map(max, at, limits_at)), tuple(map(min, power, limits_power))
            band[str(k)] = {"pass_at_k": rounded(at), "pass_power_k": rounded(power)}
    return band


# Statistics: differences

def is_walked(differences) -> bool:
    """Whether the sums of all signs of these differences are few enough to be counted one after another."""
    return sum(map(bool, differences)) ** 2 * sum(map(abs, differences)) <= MOST_WALKED


def walked_p(sizes, observed) -> float:
    """The share of all 2^g signs of the sizes whose sum is at least as far from 0 as the one observed, by counting.

    The ways to reach each sum of the flipped ones stand side by side in one integer, so that a step of the walk
    is a shift and an addition."""
    most_flipped = (sum(sizes) - observed) // 2
    slot = len(sizes) + 1
    ways, kept = 1, (1 << slot * (most_flipped + 1)) - 1
    for size in sizes:
        ways = (ways + (ways << slot * size)) & kept
    at_least_as_far = ways % ((1 << slot) - 1)      # the sum of the slots, as casting out nines sums digits
    return 2 * at_least_as_far / 2 ** len(sizes)


def inverted_p(sizes, observed) -> float:
    """The same share, to 1e-12 and never less, from the Fourier transform of the sum, a product of cosines.

    Sums more than 9 standard deviations from 0 have too small a share to show, so a transform of so many points
    as reach from there to the sum observed tells those between apart."""
    spread = math.sqrt(sum(size * size for size in sizes))
    if observed > 9 * spread:
        return 1e-12
    points = min(sum(sizes) + 1, math.ceil((observed + 9 * spread) / 2))
    alike, terms = Counter(sizes).most_common(), [observed - 1]
    for point in range(1, points):
        angle = math.pi * point / points
        term = math.sin((observed - 1) * angle) / math.sin(angle)
        for size, count in alike:
            term *= math.cos(size * angle) ** count
            if -1e-18 < term < 1e-18:
                break
        terms.append(term)
    return min(1.0, max(1e-12, 1 - math.fsum(terms) / points))


def sign_flip_p(differences: list) -> float:
    """The exact two-sided p of whole-number differences: the share of all 2^g signs whose sum is as far from 0.

    On differences of 1 and −1 it is McNemar's test: [1, 1, 1, 1] → 0.125."""
    sizes = [abs(difference) for difference in differences if difference]
    observed = abs(sum(differences))
    if observed == 0:
        return 1.0
    return (walked_p if is_walked(sizes) else inverted_p)(sizes, observed)      # the same to 1e-12


def around(middle, variance, freedom):
    """[low, high] around a difference, within [−1, 1]; None where nothing varies."""
    if freedom < 1 or not variance:
        return None
    half = t_quantile(freedom) * math.sqrt(variance)
    return [round(max(-1.0, middle - half), 4), round(min(1.0, middle + half), 4)]


def significant(p):
    """A p-value to four digits."""
    return float(f"{p:.4g}")


# The command line, shared by the scripts

def version() -> str:
    """What tells two copies of the tool apart: the versions of its formats and a hash of its code; and the Python."""
    code = {name: own_file(HERE / f"{name}.py") for name in ("harness", "bench", "report", "model_triage", "triage_task")}
    formats = [f"{name} {found[1].decode()}" for name, text in code.items()
               for found in [re.search(rb'^[A-Z]+_VERSION = "(.+)"', text, re.MULTILINE)] if found]
    digest = hashlib.sha256(b"".join(code.values()).replace(b"\r\n", b"\n")).hexdigest()
    return f"{', '.join(formats)}, code {digest[:12]}, Python {platform.python_version()}"


class Version(argparse.Action):
    """Say which version this is, made only when somebody asks."""

    def __call__(self, parser, namespace, values, option_string=None):
        print(version())
        parser.exit()


class Parser(argparse.ArgumentParser):
    """A parser whose help is the module's docstring and whose errors are one line."""

    def __init__(self, hint=lambda option: "", **options):
        """hint says of an unknown option what to give in its place, where it knows."""
        super().__init__(formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False, **options)
        self.hint = hint
        self.add_argument("--version", action=Version, nargs=0, help="say which version this is and exit")

    def error(self, message):
        unknown = re.match(r"unrecognized arguments: (-*[^\s=]+)", message)
        hint = unknown and (self.hint(unknown[1]) or nearest(unknown[1], self._option_string_actions)) or ""
        self.exit(2, f"error: {printable(message)}{hint}\n")


def whole_number(text: str) -> int:
    """An option's value as a whole number from 1 up."""
    if not re.fullmatch(r"[0-9]{1,9}", text) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 up")
    return int(text)


def seconds(text: str) -> float:
    """An option's value as a number of seconds, 0 or more."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number) or number < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds, 0 or more")
    return number


def complain(message: str) -> int:
    """Say on stderr what is wrong, in one line, and give exit status 1."""
    with contextlib.suppress(OSError):      # nobody may be there to read it
        if sys.stderr:
            print(f"error: {printable(message)}", file=sys.stderr, flush=True)
    return 1


class Steady:
    """A stream that never ends a command: what cannot be written to it is noted as its error and forgotten."""

    def __init__(self, stream):
        self.stream, self.error = stream, None

    def __getattr__(self, name):
        return getattr(self.stream, name)

    def write(self, text) -> int:
        self.attempt(self.stream.write, text)
        return len(text)

    def flush(self) -> None:
        self.attempt(self.stream.flush)

    def attempt(self, function, *arguments) -> None:
        try:
            if self.error is None:
                function(*arguments)
        except OSError as error:
            self.error = error

    def end(self):
        """The error, once all is written; what is left then goes nowhere, so that Python does not fail on it."""
        self.flush()
        if self.error:
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.stream.fileno())
        return self.error


def in_shell(*words) -> str:
    """Words as a line that a shell takes for them, printable: "a b" → 'a b', on Windows "a b"."""
    if not ON_WINDOWS:
        return printable(shlex.join(map(str, words)))
    quoted = (word if re.fullmatch(r"[\w@+=:,./\\-]+", word) else '"{}"'.format(word.replace('"', '\\"')) for word in map(str, words))
    return printable(" ".join(quoted))


def unusual(args) -> list:
    """The words that name a command's task and cases again, where they are not the usual ones."""
    usual = (("--task", args.task, "triage_task"), ("--cases", args.cases, DEFAULT_CASES))
    return [word for option, value, default in usual if value is not None and str(value) != str(default)
            for word in (option, as_word(value))]


def as_word(path) -> str:
    """A file's name as a word of a command that is no option: "-x.jsonl" → "./-x.jsonl"."""
    word = Path(path).as_posix() if ON_WINDOWS else str(path)       # every shell there takes it with / too
    return f"./{word}" if word.startswith("-") else word


def beside_caller(name: str) -> str:
    """A script of the tool as its caller has to name it: beside the script that is running."""
    folder, running = os.path.split(sys.argv[0])
    if running.endswith(".pyz"):        # a zip archive, which holds all of them but starts as one
        return os.path.join(folder, Path(name).with_suffix(".pyz"))
    return os.path.join(folder, name) if (HERE / running).suffix == ".py" and (HERE / running).exists() else name


def terminate(signum, frame):
    sys.exit(128 + signum)      # leaves no temporary file, as the default would


def status_of(command, argv) -> int:
    """The exit status of command(argv): every refusal is a line `error: …`, never a traceback."""
    try:
        return command(argv)
    except CaseError as error:
        return max(complain(problem) for problem in str(error).split("\n"))
    except UsageError as error:
        return complain(str(error)) + 1
    except (RunError, SystemDown) as error:
        return complain(str(error))
    except OSError as error:
        return complain(f"{error.filename}: {error.strerror}" if error.filename else str(error))
    except KeyboardInterrupt:
        return 130


def run_command(command, argv=None) -> int:
    """The exit status of command(argv), whatever becomes of what it prints: a reader may leave, a disk be full."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    out, err = (Steady(stream) if stream else None for stream in (sys.stdout, sys.stderr))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = status_of(command, argv)
        finally:
            lost = out.end() if out else None
        if lost and lost.errno not in READER_LEFT:
            status = max(status, complain(f"the result cannot be printed: {lost.strerror}"))
    return status


def parse_args(argv):
    parser = Parser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", description=__doc__, help="grade a recording into a run record")
    run.add_argument("--recording", required=True, metavar="R", help="the recording to grade")
    run.add_argument("--out", required=True, metavar="RUN", help="the run record to write")
    run.add_argument("--task", default="triage_task", help="a task file or module (default: %(default)s)")
    run.add_argument("--cases", help="the case file (default: the task file's own, or the one beside this script)")
    run.add_argument("--regrade", action="store_true", help="grade with checks that have changed since the run")
    check = commands.add_parser("check", description=__doc__, help="find what cases share that they should not")
    check.add_argument("task", nargs="?", default="triage_task", help="a task file or module (default: %(default)s)")
    check.add_argument("--cases", help="the case file (default: the task file's own, or the one beside this script)")
    check.add_argument("--system", metavar="MODULE:NAME", help="a system whose prompt and examples are looked at too")
    return parser.parse_args(argv)


def check(args) -> int:
    """Say what the cases of a task share that they should not; 1 where that is anything."""
    task, case_set = load_plan(args.task, args.cases)
    system = load_system(args.system, case_set) if args.system else None
    asked = getattr(task, "asked", None) or getattr(system, "asked", None)
    found = contamination(case_set, asked, getattr(system, "examples", ()))
    cases = len(case_set["cases"])
    print(*map(printable, [*getattr(task, "warnings", ()), *found]), sep="\n", end="\n" * bool(found or getattr(task, "warnings", ())))
    print(f"{printable(task.NAME)}: {cases} case{'s' * (cases != 1)}, " + (f"{len(found)} found" if found else "nothing shared, none alike"))
    return 1 if found else 0


def run(argv=None) -> int:
    """Grade a recording into a run record, or check the cases of a task."""
    args = parse_args(argv)
    if args.command == "check":
        return check(args)
    task, case_set = load_plan(args.task, args.cases)
    if is_irreplaceable(args.recording):
        raise RunError(f"{args.recording}: this is a log: bench.py --log {args.recording} --convert makes a recording "
                       "of it")
    try:
        run_record = replay(read_json(args.recording), task, case_set, args.regrade)
    except RunError as error:
        raise RunError(str(error) if str(args.recording) in str(error) else f"{args.recording}: {error}") from error
    write(args.out, run_record)
    print(f"{printable(args.out)}: {len(run_record['results'])} trials graded")
    return 0


def main(argv=None) -> int:
    """The command line; returns the exit status."""
    return run_command(run, argv)


def script():
    """The program as a command, and the start of a zip archive."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, terminate)
    sys.exit(main())


if __name__ == "__main__":
    script()
