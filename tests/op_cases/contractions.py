"""Rows of einsum."""

from . import Op, classes, flags, real, refusal, sample


def _einsum(equation, *shapes, **kwargs):
    return sample(equation, *(real(*shape) for shape in shapes), **kwargs)


def _no(error, message, equation, *shapes):
    return refusal(error, f"einsum: {message}", equation, *(real(*shape) for shape in shapes))


EQUATIONS = (  # an equation, and the shapes of its operands
    ("ij,jk->ik", (2, 3), (3, 4)),
    ("ij,jk", (2, 3), (3, 4)),
    ("ba", (2, 3)),
    ("bA", (2, 3)),
    ("ij->ij", (2, 3)),
    ("ij->ji", (2, 3)),
    ("ij->", (2, 3)),
    ("ij->j", (2, 3)),
    ("i,j->ij", (3,), (4,)),
    ("i,i->i", (3,), (3,)),
    ("i,i", (3,), (3,)),
    ("ij,ij->ij", (2, 3), (2, 3)),
    ("ij,ij->", (2, 3), (2, 3)),
    ("ij,ji", (2, 3), (3, 2)),
    ("bij,bjk->bik", (5, 2, 3), (5, 3, 4)),
    ("bij,bkj->bik", (5, 2, 3), (5, 4, 3)),
    ("ijb,bkj->kib", (2, 3, 5), (5, 4, 3)),
    ("bhqd,bhkd->bhqk", (2, 3, 4, 5), (2, 3, 6, 5)),
    ("ijk,jkl->il", (2, 3, 4), (3, 4, 5)),
    ("ijk,kjl->li", (2, 3, 4), (4, 3, 5)),
    ("ij,kl->ijkl", (2, 3), (4, 5)),
    ("ij,kl->ki", (2, 3), (4, 5)),
    ("ij,jk,kl->il", (2, 3), (3, 4), (4, 2)),
    ("i,i,i->i", (3,), (3,), (3,)),
    ("i,ij,j->", (3,), (3, 4), (4,)),
    ("ij,jk,ki", (2, 3), (3, 4), (4, 2)),
    ("a,b,c,d->dcba", (2,), (3,), (4,), (5,)),
    ("Aa,aB->AB", (2, 3), (3, 4)),
    ("", ()),
    ("->", ()),
    (",->", (), ()),
    ("i,,j->ij", (3,), (), (4,)),
    (" i j , j k -> i k ", (2, 3), (3, 4)),
    ("...", (2, 3)),
    ("...->", (2, 3)),
    ("i...", (2, 3)),
    ("...ij->...ji", (2, 3, 4)),
    ("i...->i", (2, 3)),
    ("i...->...", (2, 3)),
    ("...ij,...jk->...ik", (5, 2, 3), (5, 3, 4)),
    ("...ij,...jk", (5, 1, 2, 3), (6, 3, 4)),
    ("...ij,jk->...ik", (5, 6, 2, 3), (3, 4)),
    ("...i,...i->...", (2, 1, 3), (5, 3)),
    ("a...,b...->ab...", (2, 6), (3,)),
    ("i...j,j...k->...ik", (2, 6, 3), (3, 6, 4)),
    ("...,...", (2, 3), ()),
    ("ij,kj->ik", (2, 3), (5, 1)),
    ("ij,j->ij", (2, 3), (1,)),
    ("ij,j->i", (2, 1), (3,)),
    ("ij,jk->ik", (2, 0), (0, 3)),
    ("ij,jk->ki", (0, 2), (2, 3)),
    ("ij,j->j", (0, 3), (3,)),
    ("i,i->", (1,), (1,)),
    ("ij,jk->ik", (9, 33), (33, 17)),
)

OPS = [
    Op(
        "einsum",
        (*(_einsum(equation, *shapes) for equation, *shapes in EQUATIONS),),
        (
            _no(ValueError, "equation is 'i,j->ij', but there are 1 operands", "i,j->ij", (3,)),
            _no(ValueError, "equation is 'i->i', but there are 2 operands", "i->i", (3,), (3,)),
            _no(ValueError, "equation is 'i->i', but there are 0 operands", "i->i"),
            _no(ValueError, "operands[0] has shape (3,), but 'ij' in 'ij->i'", "ij->i", (3,)),
            _no(ValueError, "operands[0] has shape (3, 2, 2), but 'ij' in 'ij->i'", "ij->i", (3, 2, 2)),
            _no(ValueError, "operands[0] has shape (3,), but 'i...j'", "i...j->i", (3,)),
            _no(ValueError, "operands[0] has shape (3, 3), but 'ii' in 'ii->i'", "ii->i", (3, 3)),
            _no(ValueError, "equation is 'i->ii', wanted letters of operands in the result, each once", "i->ii", (3,)),
            _no(ValueError, "equation is 'i->j', wanted letters of operands in the result", "i->j", (3,)),
            _no(ValueError, "equation is 'i->i->i', wanted letters", "i->i->i", (3,)),
            _no(ValueError, "operands[0] has shape (3,), but 'i-i'", "i-i", (3,)),
            _no(ValueError, "operands[0] has shape (3, 2), but 'i..'", "i..->i", (3, 2)),
            _no(ValueError, "operands[0] has shape (3, 2), but '......'", "......->", (3, 2)),
            _no(ValueError, "j has size 2 in shape (2,), elsewhere 3", "ij,j->ij", (2, 3), (2,)),
            _no(ValueError, "8 has size 4 in shape (4, 5, 3), elsewhere 2", "...i,...i->...", (2, 1, 3), (4, 5, 3)),
            refusal(TypeError, "einsum: equation is a int, wanted a string", 5, real(3)),
            refusal(TypeError, "einsum: operands[0] is a float, wanted a Tensor", "i", 2.0),
            refusal(TypeError, "einsum: operands[1] is a NoneType", "i,i", real(3), None),
            refusal(TypeError, "einsum: another has elements int64", "ij,jk->ik", real(2, 3), classes(5, 3, 4)),
            refusal(TypeError, "has elements bool, wanted numbers", "i,i->", flags(3), flags(3)),
        ),
        torch=lambda torch: torch.einsum,
        views=True,
    ),
    Op(
        "einsum",
        (
            sample("ij,jk->ik", classes(5, 2, 3), classes(5, 3, 4)),
            sample("ij->", flags(2, 3)),
        ),
        (refusal(TypeError, "has elements bool", "ij,jk->ik", flags(2, 3), flags(3, 2)),),
        torch=lambda torch: torch.einsum,
        differentiable=False,
        views=True,
    ),
]
