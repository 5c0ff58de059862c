"""Cases, tasks, systems, one call, recordings, grading and run records.

    python3 harness.py run --recording R --out RUN [--task triage_task] [--cases cases.json]

grades a recording (what became of every planned trial of every case) with the checks of the task, and writes
a run record: a manifest, then a row a trial with its verdict, which is pass, fail or incomplete. Nothing in
it depends on the machine, the time or the Python that made it.
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
import contextlib
import copy
import difflib
import errno
import hashlib
import importlib
import inspect
import json
import keyword
import math
import os
import re
import time
from dataclasses import dataclass, field
from pathlib import Path

try:
    import fcntl
except ImportError:     # Windows
    fcntl = None

HARNESS_VERSION = "1"
HERE = Path(__file__).resolve().parent
DEFAULT_CASES = HERE / "cases.json"
SPLITS = ("development", "held-out")
IDENTITY = ("name", "version", "mode", "model", "prompt", "tools")
EXTRA_IDENTITY = ("options", "schema")
PLAN_KEYS = ("harness_version", "system", "case_set_sha256", "splits", "trials")
CASE_KEYS = ("id", "class", "split", "input", "expect", "failure_criteria", "expect_rejection")
# Python's own json reader gives up near 1,000 levels, at a depth that differs between versions.
MAX_DEPTH = 100
# More is a slip of the finger, and its plan alone would fill the memory.
MAX_TRIALS = 100_000
# How a log of trials begins: the one kind of file here that cannot be made again, so no writer replaces one.
IRREPLACEABLE = b'{"bench_version"'
ABSENT = object()
# How a file system says that it has no locks or no sync (NFS, Lustre, FUSE, network shares).
NOT_OFFERED = {errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, getattr(errno, "ENOTSUP", errno.EOPNOTSUPP), errno.EINVAL}
# What must not reach a terminal or hide in one: controls, direction marks, separators, characters
# without width, lone surrogates.
UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u2064"
                         "\u2066-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]")


# What a message template may hold: {input}, or {input.FIELD} of an input that is an object.
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


def parse_json(text: str):
    """The value of a JSON text; ValueError for what is none: NaN, 1e999, repeated keys and absurd depth too."""
    try:
        value, end = STRICT.raw_decode(text) if text.startswith("{") else (None, -1)     # the usual row, in less time
        return value if end == len(text) else STRICT.decode(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def read_text(path) -> str:
    """The text of a UTF-8 file without its byte-order mark; RunError when it is no UTF-8."""
    try:
        return Path(path).read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise RunError(f"{path}: not UTF-8 text: byte {error.start} is 0x{error.object[error.start]:02x}") from None


def read_json(path):
    """The value that a JSON file holds; RunError names the file and the place."""
    try:
        return parse_json(read_text(path))
    except RunError:
        raise
    except ValueError as error:
        raise RunError(f"{path}: not JSON: {error}") from None


def is_irreplaceable(path) -> bool:
    """Whether a file holds a log of trials."""
    if not os.path.isfile(path):
        return False
    with open(path, "rb") as file:
        return file.read(len(IRREPLACEABLE)) == IRREPLACEABLE


def sync(file_descriptor) -> bool:
    """Force what was written onto the disk itself; False where the file system cannot do it."""
    try:
        try:
            if hasattr(fcntl, "F_FULLFSYNC"):       # macOS needs more than fsync for that
                fcntl.fcntl(file_descriptor, fcntl.F_FULLFSYNC)
                return True
        except OSError:     # a file system without it
            pass
        os.fsync(file_descriptor)
    except OSError as error:
        if error.errno not in NOT_OFFERED:
            raise
        return False
    return True


def replace_file(target, text) -> None:
    """Put a text into a temporary file beside the target and rename it."""
    temporary = target.with_name(f".{os.urandom(6).hex()}.tmp")
    with open(temporary, "x", encoding="utf-8", newline="\n") as file:
        try:
            file.write(text)
            file.flush()
            sync(file.fileno())
            os.replace(temporary, target)
        except BaseException:
            temporary.unlink()
            raise


def write_text(path, text: str) -> None:
    """Put a text into a file, whole or not at all; a log of trials is never replaced."""
    target = Path(os.path.realpath(path))
    try:
        if is_irreplaceable(target):
            raise RunError(f"{path}: this is a log of trials, which nothing replaces: give another name")
        if target.is_file() or target.is_dir() or not target.exists():
            replace_file(target, text)
        else:
            target.write_text(text, encoding="utf-8", newline="\n")     # a pipe or a terminal cannot be replaced
    except OSError as error:
        raise RunError(f"{path}: cannot be written: {error.strerror}") from None


def write(path, value) -> None:
    """Put a JSON value into a file, whole or not at all, its key order kept, with a final newline."""
    write_text(path, json.dumps(value, indent=2, allow_nan=False) + "\n")


# Tasks and cases

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
        raise RunError(f"{what} {name} cannot be imported: {type(error).__name__}: {error}") from error


def load_task(name: str):
    """The task module of that name: it has NAME, CHECKS and case_problems."""
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
    """{name, sha256} of a task module; the hash is over its source with newlines normalised.

    A guard at its end grades nothing and is left out."""
    source = Path(task.__file__).read_bytes().replace(b"\r\n", b"\n").replace(b"\r", b"\n")
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
    if case["expect"] in ({}, None):
        return ["nothing to check: expect names no field"]
    try:
        return [str(problem) for problem in task.case_problems(case)]
    except Exception as error:      # the task's own code runs here
        raise RunError(f"case_problems of {task.NAME} raised {type(error).__name__} on case "
                       f"{json.dumps(case.get('id'))}: {error}") from error


def one_case_problems(case, task):
    """What is wrong with one case, duplicates apart."""
    if not isinstance(case, dict):
        return ["it is not an object"]
    problems = [f"{key} is empty or not text" for key in ("id", "class")
                if not isinstance(case.get(key), str) or not case[key].strip()]
    if case.get("split") not in SPLITS:
        problems.append(f"split is {json.dumps(case.get('split'))}, not one of {', '.join(SPLITS)}")
    if "input" not in case or not isinstance(case["input"], (str, type(None))):
        problems.append("input is not there" if "input" not in case else "input is neither text nor null")
    problems += [f"unknown key {json.dumps(key)}{nearest(key, CASE_KEYS)}" for key in case
                 if key not in CASE_KEYS and nearest(key, CASE_KEYS)]
    return problems + expectation_problems(case, task)


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


def load_cases(path, task) -> dict:
    """The case set {name, sha256, cases} of a file; CaseError lists all its problems, one a line."""
    try:
        document = read_json(path)
    except RunError as error:
        raise CaseError(printable(str(error))) from None
    problems = case_file_problems(document, task)
    if problems:
        raise CaseError("\n".join(f"{printable(str(path))}: {problem}" for problem in problems))
    return {"name": document["name"], "sha256": sha256(canonical(document)), "cases": document["cases"]}


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


# Systems and one call

def filled(template: str, case_input) -> str:
    """A message template with a case's input in it: ("Sort {input.subject}", {"subject": "Bill"}) → "Sort Bill"."""
    def text_for(found):
        value = case_input if found[1] is None else case_input[found[1]]
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return PLACEHOLDER.sub(text_for, template)


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
        raise RunError(f"system {spec} cannot be made: {type(error).__name__}: {error}") from error
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


def too_deep(value) -> bool:
    """Whether a value has more than MAX_DEPTH levels of lists and dicts (a cycle has); [] has one."""
    stack = [(value, 1)]
    while stack:
        item, depth = stack.pop()
        if isinstance(item, (dict, list, tuple)):
            if depth > MAX_DEPTH:
                return True
            children = item.values() if isinstance(item, dict) else item
            stack += [(child, depth + 1) for child in children if isinstance(child, (dict, list, tuple))]
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


def metadata_of(system, trial, error) -> dict:
    """What is known of a trial whose call raised: its seed, and the metadata that the error carries."""
    metadata = {}
    try:
        if has(system, "seed_for"):
            metadata.update(exact({"seed": system.seed_for(trial)}, "seed"))
        metadata.update(exact(dict(getattr(error, "metadata", None) or {}), "metadata"))
    except Exception as fault:      # the system's own code runs here
        metadata["metadata_error"] = message_of(fault)
    return metadata


def failure(system, trial, error, latency_s) -> dict:
    """The response of a trial whose call raised."""
    # NotRun is the word for a planned trial without a row, which no row may claim.
    types = [name for name in error_types(error) if name not in ("", "NotRun")] or ["Exception"]
    return {"error": {"types": types, "message": message_of(error)},
            "metadata": metadata_of(system, trial, error), "latency_s": latency_s}


def attempt(system, case: dict, trial: int, clock=time.perf_counter) -> dict:
    """The response of one trial: {output, metadata, latency_s}, or {error, metadata, latency_s}.

    SystemDown passes through: it is no result."""
    start = clock()
    try:
        output, metadata, latency_s = call(system, case, trial, clock)
    except (SystemDown, KeyboardInterrupt):
        raise
    except BaseException as error:      # the boundary of one trial: whatever a system raises is that trial's result
        return failure(system, trial, error, round(clock() - start, 6))
    return {"output": output, "metadata": metadata, "latency_s": latency_s}


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


def is_number(value) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def response_problem(response):
    """What is wrong with the shape of a response, or None."""
    if not isinstance(response, dict) or ("output" in response) == ("error" in response):
        return "it has not exactly one of output and error"
    latency, error = response.get("latency_s", ABSENT), response.get("error")
    if not (is_number(latency) and latency >= 0) and not (latency is None and "error" in response):
        return "latency_s is not a number of seconds"
    if not isinstance(response.get("metadata", {}), dict):
        return "metadata is not an object"
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
    """(verdict, check, reason) of one response: pass, fail or incomplete; the first check that fails names it."""
    if "error" in response:
        return grade_error(case, response["error"])
    if "expect_rejection" in case:
        wanted = json.dumps(case["expect_rejection"])
        return "fail", "rejection", f"answered an input that it must refuse with {wanted}"
    for name, check in task.CHECKS:
        try:
            reason = check(case, response["output"])
        except Exception as error:      # a check is the task's own code
            raise RunError(f"check {name} raised {type(error).__name__} on case {case['id']}: {error}") from error
        if reason is not None and not (isinstance(reason, str) and reason):
            raise RunError(f"check {name} returned {reason!r} on case {case['id']}, not a reason or None")
        if reason is not None:
            return "fail", name, reason
    return "pass", None, None


def graded_row(task, case, trial, response):
    """One row of a run record."""
    try:
        verdict, check, reason = grade(task, case, response)
    except RunError as error:
        raise RunError(f"{error} (trial {trial})") from error
    return result_row(case, trial, response, verdict, check, reason)


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
        digest.update("".join(f'[{name},{trial},"{text}"]\n' for trial, text in enumerate(found)).encode())
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


def replay(recording: dict, task, case_set: dict, regrade: bool = False) -> dict:
    """The run record of a recording: {"manifest": …, "results": [one graded row a trial, by case then trial]}."""
    problems = recording_problems(recording, case_set)
    if problems:
        raise RunError("; ".join(problems[:3]) + (f"; and {len(problems) - 3} more" if len(problems) > 3 else ""))
    check_task(recording, task, regrade)
    cases = plan(case_set, recording["splits"], recording["trials"], include_held_out=True)
    recording = {**recording, "responses": {case["id"]: recording["responses"][case["id"]] for case in cases}}
    return {"manifest": run_manifest(recording, task, case_set, recording_sha256(recording)),
            "results": [graded_row(task, case, trial, response) for case in cases
                        for trial, response in enumerate(recording["responses"][case["id"]])]}


# The command line, shared by the scripts

class Parser(argparse.ArgumentParser):
    """A parser whose help is the module's docstring and whose errors are one line."""

    def __init__(self, **options):
        super().__init__(formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False, **options)

    def error(self, message):
        unknown = re.match(r"unrecognized arguments: (--[\w-]+)", message)
        hint = nearest(unknown[1], self._option_string_actions) if unknown else ""
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


def silence() -> None:
    """Send what is still printed nowhere: the reader of stdout has left."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def unusual(args) -> list:
    """The words that name a command's task and cases again, where they are not the usual ones."""
    usual = (("--task", args.task, "triage_task"), ("--cases", str(args.cases), str(DEFAULT_CASES)))
    return [word for option, value, default in usual if value != default for word in (option, as_word(value))]


def as_word(path) -> str:
    """A file's name as a word of a command that is no option: "-x.jsonl" → "./-x.jsonl"."""
    return os.path.join(".", path) if str(path).startswith("-") else str(path)


def beside_caller(name: str) -> str:
    """A script of the tool as its caller has to name it: beside the script that is running."""
    folder, running = os.path.split(sys.argv[0])
    return os.path.join(folder, name) if (HERE / running).suffix == ".py" and (HERE / running).exists() else name


def terminate(signum, frame):
    sys.exit(128 + signum)      # leaves no temporary file, as the default would


def run_command(command, argv=None) -> int:
    """The exit status of command(argv): every refusal is a line `error: …`, never a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        try:
            return command(argv)
        finally:
            if sys.stdout:
                sys.stdout.flush()
    except CaseError as error:
        return max(complain(problem) for problem in str(error).split("\n"))
    except UsageError as error:
        return complain(str(error)) + 1
    except (RunError, SystemDown) as error:
        return complain(str(error))
    except BrokenPipeError:
        silence()
        return 0
    except OSError as error:
        return complain(f"{error.filename}: {error.strerror}" if error.filename else str(error))
    except KeyboardInterrupt:
        return 130


def parse_args(argv):
    parser = Parser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", description=__doc__, help="grade a recording into a run record")
    run.add_argument("--recording", required=True, metavar="R", help="the recording to grade")
    run.add_argument("--out", required=True, metavar="RUN", help="the run record to write")
    run.add_argument("--task", default="triage_task", help="the module with the checks (default: %(default)s)")
    run.add_argument("--cases", default=DEFAULT_CASES, help="the case file (default: the one beside this script)")
    run.add_argument("--regrade", action="store_true", help="grade with checks that have changed since the run")
    return parser.parse_args(argv)


def run(argv=None) -> int:
    """Grade a recording into a run record."""
    args = parse_args(argv)
    task = load_task(args.task)
    case_set = load_cases(args.cases, task)
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


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, terminate)
    sys.exit(main())
