"""Says whether the answer to an exercise is right."""

import copy

import numpy as np

__all__ = ["check"]


def check(answer, cases, hint="", tolerance=1e-5):
    """Print one line on a function that a reader wrote: right, wrong with what came out, or not yet.

    cases       pairs (arguments, wanted); each is tried on copies of the arguments; wanted may be a tuple of arrays
    hint        what to think about if a result is not as wanted
    tolerance   the difference allowed, relative to the largest value wanted, or absolute below 1
    """
    print(f"{answer.__name__}: {_verdict(answer, cases, hint, tolerance)}")


def _verdict(answer, cases, hint, tolerance):
    for arguments, wanted in cases:
        try:
            result = answer(*copy.deepcopy(arguments))
        except Exception as error:
            raised = f"raised {type(error).__name__}: {error}"
            return f"wrong: {_call(answer, arguments)} {raised}" + (f"; {hint}" if hint else "")
        if result is None or result is ...:
            return "not yet: write it in place of the dots and run the cell again"
        fault = _difference(result, wanted, tolerance)
        if fault:
            return f"wrong: {_call(answer, arguments)} gave {fault}" + (f"; {hint}" if hint else "")
    return "right"


def _call(answer, arguments):
    return f"{answer.__name__}({', '.join(map(_short, arguments))})"


def _array(value):
    """The elements of a Tensor; anything else as it is."""
    return value.detach().numpy() if hasattr(value, "detach") else value


def _short(value):
    value = _array(value)
    if hasattr(value, "__name__"):
        return value.__name__  # a function
    if isinstance(value, np.ndarray) and value.size > 6:
        return f"array of shape {value.shape}"
    text = " ".join(repr(value.tolist() if isinstance(value, np.ndarray) else value).split())  # one line
    return text if len(text) <= 80 else f"{text[:77]}..."


def _difference(result, wanted, tolerance):
    """What is wrong with a result, or an empty text."""
    if isinstance(wanted, tuple) and any(hasattr(one, "shape") for one in wanted):
        if not isinstance(result, tuple | list) or len(result) != len(wanted):
            return f"a {type(result).__name__}, wanted a tuple of {len(wanted)} results"
        faults = [_difference(one, want, tolerance) for one, want in zip(result, wanted, strict=True)]
        return next((f"result {place}: {fault}" for place, fault in enumerate(faults) if fault), "")
    if isinstance(wanted, list | tuple | str | bool | dict):
        result = result.tolist() if isinstance(result, np.ndarray | np.generic) else result
        return "" if result == wanted else f"{_short(result)}, wanted {_short(wanted)}"
    got, want = np.asarray(_array(result)), np.asarray(_array(wanted))
    if got.shape != want.shape:
        return f"shape {got.shape}, wanted {want.shape}"
    scale = max(1.0, float(np.abs(want).max(initial=0)))
    if np.allclose(got, want, rtol=0, atol=tolerance * scale):
        return ""
    if want.size == 1:
        return "{}, wanted {}".format(*_apart(got.item(), want.item()))
    far = np.abs(got - want)
    place = np.unravel_index(np.argmax(np.where(np.isnan(far), np.inf, far)), want.shape)
    here, there = _apart(got[place].item(), want[place].item())
    return f"{here} at [{', '.join(map(str, place))}], wanted {there}"


def _apart(got, want):
    """Two numbers as text, with as many digits as tell them apart; integers whole."""
    for digits in (6, 9, 17):
        texts = [str(number) if isinstance(number, int) else f"{number:.{digits}g}" for number in (got, want)]
        if texts[0] != texts[1]:
            break
    return texts
