"""gen.base.sealed: what is sealed comes back; any byte that changes is seen."""

import pytest

from gen.base.sealed import seal, understood, unseal

CONTENT = {"name": "köln", "rows": [1, 2, 3], "share": 0.1, "inner": {"none": None}}


def test_comes_back_and_is_the_same_bytes():
    data = seal("plan", 3, CONTENT)
    assert unseal("plan", 3, data, "a.json") == CONTENT
    assert seal("plan", 3, unseal("plan", 3, data, "a.json")) == data


def test_every_flipped_bit_is_seen():
    data = seal("plan", 3, CONTENT)
    for at in range(len(data)):
        for bit in range(8):
            wrong = bytearray(data)
            wrong[at] ^= 1 << bit
            with pytest.raises(ValueError, match=r"^a\.json is "):
                unseal("plan", 3, bytes(wrong), "a.json")


@pytest.mark.parametrize("data, told", [
    (b"", "x is no plan of hotrail, or damaged"),
    (b"[1]", "x is no plan of hotrail, or damaged"),
    (b"[" * 100_000, "x is no plan of hotrail, or damaged"),
    (seal("plan", 3, CONTENT)[:-1], "x is damaged: its content does not have the SHA-256 that it carries"),
    (seal("plan", 3, CONTENT) + b" ", "x is damaged: its content does not have the SHA-256 that it carries"),
    (seal("bundle", 3, CONTENT), "x is no plan of hotrail but a 'bundle'"),
    (seal("plan", 4, CONTENT), "x is a plan of version 4; this hotrail reads version 3"),
])
def test_what_is_refused(data, told):
    with pytest.raises(ValueError) as error:
        unseal("plan", 3, data, "x")
    assert str(error.value) == told


@pytest.mark.parametrize("value", [b"NaN", b"-Infinity", b"1e999", b"9" * 5000, b"[" * 900 + b"]" * 900])
def test_values_that_are_never_sealed(value):
    with pytest.raises(ValueError, match="^x is (no plan of hotrail, or )?damaged[^\n]*$"):
        unseal("plan", 3, seal("plan", 3, CONTENT).replace(b"0.1", value), "x")


def test_what_is_made_of_a_content_is_asked_for():
    for key, told in (("gone", "it lacks 'gone'"), ("name", "string indices must be integers, not 'str'"),
                      ("share", "'float' object is not subscriptable")):
        with pytest.raises(ValueError) as error, understood("plan", "x"):
            CONTENT[key]["inner"]
        assert str(error.value) == f"x is no plan as this hotrail writes them: {told}"
    with pytest.raises(OSError), understood("plan", "x"):
        raise OSError


def test_what_cannot_be_sealed():
    with pytest.raises(ValueError, match="the key 'version' is the seal's own"):
        seal("plan", 1, {"version": 2})
    with pytest.raises(ValueError):
        seal("plan", 1, {"gap": float("nan")})
