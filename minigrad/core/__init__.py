"""The engine: Tensors, primitives with their gradient rules, and the tape.

Read `tensor` (a value), `primitive` (a function on arrays with a rule for each argument), `tape` (what an application
leaves, and the way back).
"""
