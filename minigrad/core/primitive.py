"""Primitives: functions on arrays with their gradient rules.

A primitive is a function on arrays. Below it stand its gradient rules, one per argument, written in Tensors, so a
rule is itself differentiable. The parameter names of a rule say what it needs, and only that stays alive:

    g, g_NAME       the gradient of the first output, of the output NAME
    NAME            an argument as it was given, or an output
    NAME_shape      the shape of argument NAME without its elements
    index           for a starred argument: which of its Tensors is meant

Each application of a primitive to a Tensor that requires a gradient leaves a Node (tape.py) that keeps these values
until backward has asked the rules for the gradients.
"""

import functools
import inspect

from numpy import asarray, generic, ndarray

from minigrad_kernels.errors import KindError, StateError

from .. import device
from .interceptors import interceptors, proceed
from .modes import recording
from .tape import Node, edge_to
from .tensor import Target, Tensor

__all__ = ["Primitive", "primitive"]

made = Tensor.made

PLAIN = {int, float, bool, str, tuple, type(None)}  # what a tuple among arguments is mostly made of: no Tensors


class Primitive:
    """A function on arrays with its gradient rules."""

    def __init__(self, forward, outputs=("out",), fixed=(), view=None):
        if not inspect.isfunction(forward):
            raise KindError(f"primitive: forward is a {type(forward).__name__}, wanted a function of arrays")
        functools.update_wrapper(self, forward)
        self.forward, self.name = forward, forward.__name__.removeprefix("_").removesuffix("_op")
        self.signature = inspect.signature(forward)
        self.names = tuple(self.signature.parameters)
        self.outputs, self.fixed, self.view = tuple(outputs), frozenset(fixed), view
        self.incoming = tuple(f"g_{name}" for name in outputs)
        self.starred = self._starred()
        self.computed = self._spread if self.starred else forward
        self._check_names()
        places = {"shape": [f"{name}_shape" for name in self.names], "output": self.outputs, "argument": self.names}
        self.places = {name: (name, kind, i) for kind, names in places.items() for i, name in enumerate(names)}
        self.rest = {} if self.starred else self._defaults()
        self.rules, self.wants = {}, {}
        self.fast, self.fast_wants, self.fast_kept = None, (), frozenset()
        self.single = len(self.outputs) == 1
        self.needs = functools.cache(self._needs)

    def _starred(self):
        """The name of the starred argument, which must be the first; None if there is none."""
        kinds = [parameter.kind for parameter in self.signature.parameters.values()]
        starred = [name for name, kind in zip(self.names, kinds, strict=True) if kind.name.startswith("VAR_")]
        if not self.names or starred not in ([], [self.names[0]]):
            raise KindError(f"{self.name}: wanted arguments, of which only the first may be starred")
        return starred[0] if starred else None

    def _check_names(self):
        """Refuse names that rules would read otherwise, and options that name what is not there."""
        taken = [name for name in self.names if name in ("g", "index", *self.outputs) or name.startswith("g_")]
        if taken:
            raise KindError(f"{self.name}: arguments {taken} have the name of an output, of index or of a gradient")
        if unknown := sorted({*self.fixed, *([self.view] if self.view else [])} - {*self.names, *self.outputs}):
            raise KindError(f"{self.name}: fixed or view names {unknown}, wanted arguments or outputs")

    def _defaults(self):
        """{how many arguments are given by position: the values of the others}, where all others have a default."""
        defaults = [parameter.default for parameter in self.signature.parameters.values()]
        counts = range(len(defaults) + 1)
        return {n: tuple(defaults[n:]) for n in counts if inspect.Parameter.empty not in defaults[n:]}

    def bind(self, *args, **kwargs):
        """The arguments of a call in the order of the signature."""
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise KindError(f"{self.name}: {error}") from None
        bound.apply_defaults()
        return tuple(bound.arguments.values())

    def grads(self, **rules):
        """State the gradient rule of each differentiable argument."""
        known = {*self.places, "g", "index", *self.incoming}
        for argument, rule in rules.items():
            if argument not in self.names:
                raise KindError(f"{self.name}: a rule is given for {argument}, the arguments are {self.names}")
            wants = tuple(inspect.signature(rule).parameters)
            if unknown := sorted({*wants} - known):
                may = ", ".join(sorted(known))
                raise KindError(f"{self.name}: the rule of {argument} asks for {unknown}, it may ask for {may}")
            self.rules[argument], self.wants[argument] = rule, wants
        self.needs.cache_clear()

    def fast_grads(self, function):
        """State one function on arrays that returns {argument: gradient} for the argument names in `needs`.

        It is used where the gradients will not be differentiated themselves and a rule that is asked keeps an array
        anyway; .grads(...) remains the definition. What it does not return is asked from its rule.
        The arrays it returns must be its own and distinct.
        """
        self.fast, self.fast_wants = function, tuple(inspect.signature(function).parameters)
        self.fast_kept = frozenset(_kept(self.fast_wants))
        self.needs.cache_clear()
        return function

    def _needs(self, arguments):
        """((name, kind, position) of what must stay alive so that these arguments can get their gradients,
        whether the function for all at once is used for them)."""
        for name in arguments:
            if name not in self.rules:
                ways = f'state it with .grads({name}=...), list it in fixed=("{name}",), or pass {name}.detach()'
                raise StateError(f"{self.name}: {name} requires a gradient but has no rule; {ways}")
        names = _kept(set().union(*(self.wants[argument] for argument in arguments)))
        fast = self.fast is not None and any(not name.endswith("_shape") for name in names)  # else rules are as fast
        names |= self.fast_kept if fast else set()
        return [self.places[name] for name in sorted(names)], fast or self.fast is not None and self.fast_kept <= names

    def call_rule(self, name, values, outputs):
        """The gradient of an argument by its rule; None if nothing arrived at the outputs that the rule asks."""
        wants = self.wants[name]
        if not self.single:
            asked = [want for want in wants if want == "g" or want in self.incoming]
            arrived = [values[want] for want in asked if values[want] is not None]
            if not arrived:
                return None
            for want in asked:
                if values[want] is None:  # a symbolic zero: no memory behind it
                    shape, dtype, _ = outputs[0 if want == "g" else self.incoming.index(want)]
                    values[want] = made(device.zeros((), dtype, like=arrived[0].array)).expand(shape)
        return self.rules[name](*[values[want] for want in wants])

    def call_fast(self, values):
        """{argument: gradient as an array} from values of which the first gradient, g, has arrived."""
        arrays = [value.array if isinstance(value, Tensor) else value for value in map(values.get, self.fast_wants)]
        g = values["g"].array
        if g.__class__ is ndarray:
            return self.fast(*arrays)
        with device.place_of(g).active(arrays):
            return self.fast(*arrays)

    def __get__(self, tensor, owner=None):
        """As a method of Tensor, with that as the first argument."""
        return self if tensor is None else functools.partial(self, tensor)

    def __call__(self, *args, **kwargs):
        rest, stack = None if kwargs else self.rest.get(len(args)), interceptors()
        values = self.bind(*args, **kwargs) if rest is None else args + rest
        return proceed(stack, self, values) if stack else self.now(values)

    def now(self, values):
        """Apply it to arguments in the order of the signature: take their arrays, run, and record."""
        arrays, edges, away = self._unwrap(values)
        return self._record(values, arrays, edges, self._run(values, arrays, away))

    def _run(self, values, arrays, away):
        """The arrays that the function gives for these arguments, one for each output."""
        try:
            if away:
                with self._common_place(values, arrays).active(arrays):
                    result = self.computed(*arrays)
            else:
                result = self.computed(*arrays)
        except MemoryError as error:
            device.refuse_memory(self.name, error)
        if self.single and result.__class__ is ndarray:
            return (result,)
        usual = result.__class__ is tuple and [*map(type, result)] == [ndarray] * len(self.outputs)
        return result if usual and not self.single else self._arrays(result)

    def _arrays(self, result):
        """What the function returned, as one array for each output."""
        several = isinstance(result, tuple | list) and not self.single
        results = [asarray(x) if isinstance(x, generic) else x for x in (result if several else (result,))]
        if len(results) != len(self.outputs) or not all(map(device.is_array, results)):
            found = ", ".join(f"a {type(one).__name__}" for one in results)
            wanted = "an array" if self.single else f"a tuple of {len(self.outputs)} arrays: {', '.join(self.outputs)}"
            hint = "it is called with arrays, and a function of Tensors needs no @primitive"
            raise KindError(f"{self.name}: the function returned {found}, wanted {wanted}; {hint}")
        return results

    def _record(self, values, arrays, edges, results):
        """The results as Tensors, with a node on the tape if any argument needs a gradient."""
        versions = [[0]] if self.single else [[0] for _ in results]
        if self.view:
            versions[0] = self._version(values, arrays, results[0])
        node = Node(self, values, edges, results, versions) if edges else None
        if self.single:
            return made(results[0], node and Target(node, 0), versions[0])
        names = enumerate(self.outputs)
        targets = [Target(node, i) if edges and name not in self.fixed else None for i, name in names]
        return tuple(map(made, results, targets, versions))

    def _spread(self, starred, *others):
        return self.forward(*starred, **dict(zip(self.names[1:], others, strict=True)))

    def _common_place(self, values, arguments):
        """The place of all Tensors among the values.

        Tensors of the CPU without dimensions and without a gradient are numbers: they are moved there, in arguments.
        """
        named = {name: value for name, value in zip(self.names, values, strict=True) if isinstance(value, Tensor)}
        if self.starred:
            named |= {f"{self.starred}[{i}]": value for i, value in enumerate(values[0])}
        place = device.common_place(self.name, {name: t.array for name, t in named.items() if not _is_number(t)})
        for i, value in enumerate(values):
            if isinstance(value, Tensor) and _is_number(value):
                arguments[i] = device.constant(value.array, place.name)
        return place

    def _version(self, values, arguments, result):
        """The version that a result shares with the argument on whose memory it looks."""
        position = self.names.index(self.view)
        shared = device.may_share_memory(result, arguments[position])
        return values[position].version if shared and isinstance(values[position], Tensor) else [0]

    def _unwrap(self, values):
        """(the arguments as arrays, the edge to each that needs a gradient, whether any is away from the CPU)."""
        recorded, arguments, edges, away = recording.get(), [], [], False
        for name, value in zip(self.names, values):  # noqa: B905  (bind gives as many)
            if isinstance(value, Tensor):
                data = value._data
                arguments.append(data)
                away = away or data.__class__ is not ndarray
                if recorded and value._requires_grad and name not in self.fixed:
                    edges.append(edge_to(name, None, value))
            elif type(value) is tuple and not PLAIN.issuperset(map(type, value)):
                arguments.append(tuple([one._data if isinstance(one, Tensor) else one for one in value]))
                if name == self.starred:
                    away = any([one._data.__class__ is not ndarray for one in value])
                    edges = [edge_to(name, i, x) for i, x in enumerate(value) if recorded and x._requires_grad]
            else:
                arguments.append(value)
        return arguments, edges, away


def primitive(forward=None, *, outputs=("out",), fixed=(), view=None):
    """Make a function on arrays differentiable; state its rules with .grads(...) right below it.

    outputs     the names of the results, where there are several
    fixed       arguments and outputs without a gradient
    view        the argument whose memory the result may share
    """
    if forward is None:
        return functools.partial(primitive, outputs=outputs, fixed=fixed, view=view)
    return Primitive(forward, outputs, fixed, view)


def _is_number(tensor):
    """Whether a Tensor can stand for a number on any device."""
    return not tensor.shape and not tensor.requires_grad and tensor.array.__class__ is ndarray


def _kept(names):
    """Of the names that a rule asks for, those of values that must be kept until backward."""
    return {name for name in names if name not in ("g", "index", "needs") and not name.startswith("g_")}
