"""The task: sort a message to an online shop by what it is about, and say whether a person has to step in.

    {"category": "billing", "needs_human": false}

is an output: one of CATEGORIES, and true where a stranger may have got at the customer's account. Like every
task this module has a NAME, its CHECKS in order, each a name with a function (case, output) that returns why
the output fails or None, and case_problems(case), which lists what is wrong with the expectations of a case.
"""

NAME = "inbox-triage"
CATEGORIES = ("billing", "delivery", "account", "other")
FIELDS = ("category", "needs_human")
CRITERION_KEYS = {"field", "equals", "why"}


def shown(value):
    """A value as JSON writes it: True → true, 'billing' → "billing"."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return f'"{value}"' if isinstance(value, str) else repr(value)


def value_problem(field, value):
    """What is wrong with the value of a field of an output, or None."""
    if field == "category" and not (isinstance(value, str) and value in CATEGORIES):
        return f"category is {shown(value)}, not one of {', '.join(CATEGORIES)}"
    if field == "needs_human" and not isinstance(value, bool):
        return f"needs_human is {shown(value)}, not true or false"
    return None


def check_fields(case, output):
    """What keeps an output from being of the right shape."""
    if not isinstance(output, dict):
        return f"the output is {shown(output)}, not an object with {' and '.join(FIELDS)}"
    problems = [f"{field} is missing" for field in FIELDS if field not in output]
    problems += [f'"{field}" is not a field of the output' for field in output if field not in FIELDS]
    problems += [value_problem(field, output[field]) for field in FIELDS if field in output]
    return "; ".join(problem for problem in problems if problem) or None


def check_failure_criteria(case, output):
    """The first criterion that fails this output whatever else holds."""
    for criterion in case.get("failure_criteria", ()):
        if output[criterion["field"]] == criterion["equals"]:
            return f"{criterion['field']} is {shown(criterion['equals'])}: {criterion['why']}"
    return None


def check_outcome(case, output):
    """The expected fields that the output does not match."""
    differing = [f"{field} is {shown(output[field])}, expected {shown(wanted)}"
                 for field, wanted in case["expect"].items() if output[field] != wanted]
    return "; ".join(differing) or None


CHECKS = (
    ("output-fields", check_fields),
    ("failure-criteria", check_failure_criteria),
    ("triage-outcome", check_outcome),
)


def expectation_problems(case):
    """What is wrong with the fields that a case expects."""
    expect = case.get("expect", {})
    if not isinstance(expect, dict):
        return [f"expect is {shown(expect)}, not an object"]
    problems = []
    for field, value in expect.items():
        if field not in FIELDS:
            problems.append(f'expect names "{field}": the task knows {" and ".join(FIELDS)}')
        elif problem := value_problem(field, value):
            problems.append(f"expect: {problem}")
    return problems


def criterion_problems(number, criterion, expect):
    """What is wrong with one failure criterion, number counted from 0."""
    where = f"failure_criteria[{number}]"
    if not isinstance(criterion, dict) or set(criterion) != CRITERION_KEYS:
        return [f"{where} is not an object with field, equals and why"]
    field, value, why = criterion["field"], criterion["equals"], criterion["why"]
    problems = []
    if field not in FIELDS:
        problems.append(f'{where} names {shown(field)}: the task knows {" and ".join(FIELDS)}')
    elif problem := value_problem(field, value):
        problems.append(f"{where}: {problem}")
    elif isinstance(expect, dict) and field in expect and expect[field] == value:
        problems.append(f"{where} fails the very {field} that expect asks for")
    if not isinstance(why, str) or not why.strip():
        problems.append(f"{where} has no reason in why")
    return problems


def case_problems(case):
    """What is wrong with the expectations of a case, one text a problem; [] when nothing is."""
    criteria = case.get("failure_criteria", [])
    if not isinstance(criteria, list):
        return expectation_problems(case) + [f"failure_criteria is {shown(criteria)}, not a list"]
    return expectation_problems(case) + [
        problem for number, criterion in enumerate(criteria)
        for problem in criterion_problems(number, criterion, case.get("expect"))]


if __name__ == "__main__":
    import sys
    sys.exit(print("error: triage_task.py is a task, not a program: python3 bench.py runs it, python3 report.py reports it", file=sys.stderr) or 2)
