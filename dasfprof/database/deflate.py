"""Small blocks take less room deflated: FORMAT.md says how they stand in a file.

A process that runs few tasks a second writes few rows a block. Most of such a block is alike in
all: the names of columns, their forms, the words of Dask. A dictionary holds these, so each
block is still read by itself. Large blocks are mostly numbers, are left as they are, and cost
nothing.

zlib lets go of the interpreter's lock while it works: no event loop waits for it.
"""

from __future__ import annotations

import base64
import zlib

#: A payload that begins so is deflated. 0xC1 is the one byte that msgpack never writes; the other
#: names the dictionary.
_DEFLATED = b"\xc1\x01"
#: The longest payload that is deflated, so that no block takes long.
MAX_PLAIN_BYTES = 1 << 14
#: A payload must not inflate to more than this, and to no more than so many times its length: the
#: room that a file's blocks take in memory is bounded by the length of the file.
MAX_INFLATED_BYTES = 1 << 16
MAX_INFLATED_TIMES = 16

_RAW = -zlib.MAX_WBITS
#: Between 1, the quickest, and 9: of 100 bytes that remain with it, 104 remain with 1.
_LEVEL = 6


def deflate(payload: bytes) -> bytes:
    """Give the shorter form of a payload, or the payload where it stays as it is."""
    if len(payload) > MAX_PLAIN_BYTES:
        return payload
    deflater = zlib.compressobj(_LEVEL, wbits=_RAW, zdict=DICTIONARY)
    deflated = b"".join((_DEFLATED, deflater.compress(payload), deflater.flush()))
    fits = len(payload) <= MAX_INFLATED_TIMES * len(deflated)
    return deflated if fits and len(deflated) < len(payload) else payload


def inflate(payload: bytes | memoryview) -> bytes | memoryview:
    """Give the plain form of a payload; one that is not deflated is given as it is.

    Raises
    ------
    ValueError
        If it is not deflated as FORMAT.md says, or inflates to more than that allows.
    """
    if payload[: len(_DEFLATED)] != _DEFLATED:
        return payload
    inflater = zlib.decompressobj(_RAW, zdict=DICTIONARY)
    limit = min(MAX_INFLATED_BYTES, MAX_INFLATED_TIMES * len(payload))
    try:
        plain = inflater.decompress(payload[len(_DEFLATED) :], limit + 1)
    except zlib.error as error:
        raise ValueError(f"a payload that cannot be inflated: {error}") from error
    if len(plain) > limit:
        raise ValueError(f"a payload of {len(payload)} bytes inflates to more than {limit}")
    if not inflater.eof or inflater.unused_data:
        raise ValueError("a payload whose deflated part ends before or after its own end")
    return plain


#: What blocks have in common: `benchmarks/deflate_dictionary.py` made it.
DICTIONARY = zlib.decompress(
    base64.b64decode(
        """
eNqlGFtsXEf1risoWCpCikQpKsWlfBSpcZrUlCqoaRKHhEoNoDzUokqsJvfO7o58d+Yyc6+dLULUhCLUB7IdRcAPqpt92muv
0zhOo3x0PyK1UuKmVZGQIpEfKgR/LRTxA4IzM/cx+4y9myjKznnNmfM+98KpgLg+oWL8+4ziEwUPr8aQjMuQX4+PhPor8cEl
wi9hzrFzNUMocskLeGfOzUa/bZb3Ah9XlIjH9uj/H58ogYzHJ8p5nGe8sEKDvFcYD1HhiTqIc1RY8xD8EuOHkI8Oc5THKyHg
OOYEi6vhyWYcj2ckPqG8YuKEIg+5qhy7GAnsVHhAKaHZmrBz2AlczCsisG0sxIqPxNROeAURgKkHnoN8vDPLkZd7uThFqFPG
05j6ouTlQNDi00UKNy4dImJq7KRAWVzkbEakSrbL7KmF61b4J/5RcTjzPOxYZTAd48KqCvyTAFMbLyzad5UzBLuOOFPzSR4L
H+U9gF4/cKu54+Daw/uXPM6kimninF10AGPN1fwcx8hJIPOVGcanMN9ZRDwrXis7eJrYOCJfyrOA+h4DJ0Sg5QxxcVoUhI/z
EawByiM37RCObR/8BMBUyWc+cqU6B3/w8/v/Bk8pBmBIBXjwypeaEpDhGCvAo7OjrwNgSelmyzvVOx7+7cvSBssznPjYgH9j
/l0JrylyAcGjhNy99yElRFPH4AdfHU2IpZ0kdP+vP/f303/876chcQwufNM7/6fRJ3t7rv6sMtfYAcfBjvLdyAC+O7uIrFSn
884t0jeC3dp/q/9YuL5vTgu6Zm3JlUlwKme+VNauBbQWbKWuWQtrvu3t3bVr955vjz8Kf3fv7QCod7YwzRVzTMQRUKX6ZiHd
XNeZmXZJnkjn3AR1Rz55Jmf1NuHykR+eHDuk4kwME/1Wn+hvvPab7Uf/q3U0jYiLThGX+IWICVLCB2h0LOWRb+ci/mYxCBJp
TahWDj6dIENL6tPKNBHkFCSPZBFx7kRQYJUWieAxtZQRQ9ftwEHpCKWTVcQ3lB1OppXD9fm8R+SvzYk3e3ujeNzH3jBumOzt
hskj9QtbccOcMv+ZN5S2N++99Zf3P3znxZGyhzhWGf+/IlQbLyLu/ZbSEVl21WM+M8BjdMCPQMB3T82TEzq4Lj+wOXRq2i7B
SVEtySYi9P13yftnEPVxmIEpAFQFaBK4gfjd4tQ1a76lzUgJ8O896yvNHVrN9w5u/MGVya4xVmQ+I6N7G7EqA2Lsu9QZJii+
1Sc3b7I/bz0oZluDok9ZWVJ6P4MKYGOp+WcHq8vfSfV3/qe/uLVN53eN7lTJlZoqd85JqtBzxz7//Nvgn/D02Ow9c8kpteeD
y8npPu+l23CqO9jDUHWoTWQlkB3X0lKVtyeskGMrv7oZ9zkdFCcgQMeOBVSZ9guDmXZz5JHIuL/satzJxiPfM4xbdQKOfMJo
SPLUT/+1X902XPLdtnacn8IFw0i7rdisd/5VhlEQhGvGzZGvqnQdqNGW4P1+a6ddCCfdZPCcQQTG5+y5RRZbyf7orGGCMtg3
UINVsyx85mIqf0rZ3De5Gj962uCCksA8E732yZkWNIxPxpvNeiQBJRvBNKeLUesEbLyltSZNNr5MjJpUg6BNDyDlwpOzhpSS
qoBdimJvAfazXzQErHicMJgBC2nQhMsaFYXyxRiTxRTrQJQTz2oMZ9zBXF904yLIXEaUwtArCeOe/GINn7axJ2FxW+6XZhxR
kRmugt2o98+yg//86FyvLDv8hDTZ9kenX5UFC3i8OMx3DpWQcWF5Gu2WebrNRV7RTUtP8Jsj78eJoi8ON68Kxb7UQUbxYRWm
yw6W65vaJxNon3lhUtp3mD5340a/6Wff+PYtOduIqxXMd9AkpLindmldej9l9RjWHjC2ygHj5/hI3w44eenjV7ZbgVteeNt6
qCgF95ZZyzNIJEaJncTkedsLEp+GZTLM6Xv2fSyBFRrk0xknnKMekAEhIcm2MtqQZ5tRCnuqzFJZKS9GD4AL0gIDVkvQ167H
z2Pj8bqp9FDoSwa6de88MP1v9ZqqXJ2kbHnXmjqEK1O4DjcvmcBwA3GljOYFExPt0811BYXgj3U65YlEUIjQ2nTDmFtzc6OT
J0JpJoeIqfaLNlowLTdtdDJF8i534eqOa/kM0HyrC1+M1MaAatPuVo0InA7ERuSQtMfBc4H85sPU+t+8Ytp7i9hM4LqJtQjr
5OvERDy1LGjRujI2JCjwYQN9Ieo4GtYWNG9m1QN08GmcBPcpEEcRhcLgjB1VxMMUiBN3KhD/+fFQBeIVcx2SWdY2jdSFR1wX
x5EFs8RpbAd6TIonFHlDwTi39pDwe96yEpVWQWU2/zUDHqd0hFzSSHmBCW4k4A6WqsuYl3ZRNikdvaeAyqT+Fqp8dPeAs3Zq
4g6z9vpfr/SbtZ//mTXIrN1W6e8dZtLu8iGqbfj+uunYhGw+bA9tcVP0C17buN3s+GxcckKq8IuOyKE2pvlm+86VDDCDPnWJ
UPB4OtH3ftnktHXbLm9thDVpELUBJDBYHmxMpuUUncz3669/zfBllB0G/t3fmx3YyCiT5qpBU4FmiR1djooOo9gkvfTEUYPU
HMzMtKipqt6eSKsxNM7wqtaHcePlnYP1/wFVTSXu
"""
    )
)
