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
eNqlWFtsXMUZPuuIlkQgVQIViVqRDRUtDzZxcAMlLSQkTVQpKVUuasUD68k5s7sjn505zJxjZ3kBFIhaCsgxjVpVfYiTvfoS
O01wiujDIvJSJU76VqlCIN54RUJIbVXRf2bOZc7eYu8minLm+2f++ee//3vlVEBcn1Ax/gtG8YmShy/HSM5lyF+Ol4T6K/HC
JcKvYM6x82GOUOSSV/BYwc1H3zYreoGPa4rFk7v1/3smK8Bjz2S1iIuMl1ZoUPRK4yEpXFEHcY5Kax6CLzF+EPnoEEdFvBIC
xzEnWHwYrmzG8XhO0pOdH5g0obaHp+ocuxgJ7NR4QCmh+YawC9gJXMxrIrBtLMSKj8T0GLyCCKAsB56DfDyW58grvFWeJtSp
4hlMfVHxCsBo4edlCjcuHiRieuSkQHlc5mxWZCq2y+zp+ZtW+Cf+qDmceR52rCqojnFh1QV+OcDUxvML9rZqjmDXEWcaPili
4aOiB+jN/f9qPlj83r+PLnqcSRGzxHlvwQGKNdfwCxwjJ0HO1WYZn8Z8rIx4XrxTdfAMsXG0fbHIAup7DIwQQUs54uKsKAkf
FyNsFYRHbtYhHNs+2AnATMVnPnKlOM+/8OrwF/CUcgCKVMDo1b9dkECOY6yAXWeurwGwqGSz5Z3qHY8Hb0sdLM1y4mMDf2zn
1xJvqO0CnEcxuXfb3IhkonfH8Oidpy7Em6WeJLrvt6P0D++88Fm4OYZLv/+pd+mfO7pbbvlXSl0j+x0HO8p2Q33Y7r0FZGXa
jXd+gV4MJrT9Hv54+81n5zSjG9amTJk4pzLmm1VtWiBrxlbmhjW/5tveM088MbH7qfFd8HfimTZAvTN1aK5cYCL2gDrVNwtp
5mUdmVmXFIk0zh0Qd+jLIwWruwqXDv/y5MhB5WdiEO+3enn/2IWte//by2gGERedIi7xS9EhCAkf0GhZKSLfLkTnm+UgSLg1
IVs5+HRCDDWpVyszRJBTEDzyiIhjJ0LhqNRIhMe7JY8YvWYHDspGJB2sIr6h6nAyowyu15c8Ir82XuphjfJxH3uDmOFADzNc
nX91M2aYU+o/c1FJe+c7/zl25DdPW0NVD3GsIv6bMmQbL9rc/S2VwzLtqsfc08djtMMPgcN3Ds2Tk/pVjyz/d+DQtF2Ck6Ra
kUVE6Pu3yftnEfVxGIEZAOoCJAncQPxxYfqGdS5VZiQH+Hfberj5oBbzdvGR8e/KYNcUK1KfEdHdlViXDjHyM+oM4hQ/6uEU
e/dNbt4pXk87RQ9HXlRyH0El0LGU/Fv95eW9md7Gn/pk1xaN39G7MxVXSqrMOSd3hZb74cfMBfuEqz1vfX4kWb34wDejyWrb
6InHYbXsYA9D1qE2kZlAVlxLc1XWnrTCE5v56qTcX2unOAEOOnIsoEq12/tT7cbQ7ki5b3RULh2+8idDuXUn4MgnjIZbnjvL
9qnbBgu+T60HLk3jkqGkiVgNukaGYaNqDDR+wEoTN4YeVcHZV1mtwGv9dF2dD/vapM2cRQSa5fz5BRY73MZHS8aDq6DNQLVR
zarwmYup/JS8uW+cosMbfzZOQQJgnkme+MlcigzNklay1Zp9JFCxEfRuOvWk+92U0swMRIcXdhqqbICLZvvgMvH8lMGlovJd
hxTYlUFx48fvGgxWPE4YdHylLEjCZUaKHPdqTMljirXbyf7mcowz7mCuL7r1d+C5hCiFFldujCvwaw182saexOIi3CuoOKIi
N1i+ulXrHVPFqcP/6xZTh56WKtt6o3S2KljA4zHhXHsLCfEVJqMdm4uzctivbwz9Iw4UfXE4Z9Uo9qUM0osPKTddcrAc1tT0
mKDdC8TlY1iLbQxe3+5P6ceHehYJOjp/Y6tJKqXgT61Hy5Jxd56NIgPvY5TYiSEv2V6QKCLMLWEg3P/JlARrMDNnc07YasgI
XZJI2NBrdDugqxK1GaUw0EkHl0nmavQMuCYrYGCn+oS+/Fr8SDaemsv2NbXM7xsb0iPa/pmv1I66nDIkd3nbmlqE00U4OTbf
N8GwWXclj+YVkxKNns1rCgXPiaU65YmEUUjQ0nSimA9prrefiUj6kANDfetF6ylK6qb19kMRv+sdTnWmpSbm5l87nIuJWhkQ
qq2G1YTAaSOsRwbJehwsF8ifR5ialJsfmPreJDUXuG6iLcLaz7VTojONPEiRnq5WJRT4MKy9EqVrjbU4zV/y6gHa+TRNwj0S
xVFEIUE4I0fV5kESxYm7JYrz1wdKFL8zJ4cdGbOU775tffV9GZnLwiOui2PvgmJ8GtuB7jPiEi9vKRnrdBIOf/5aUqyyyrHM
6rlm4HFYR8RFTZQXmPBqArcdqbuMeVkXqUZI55fuZbR2QP902PfcJ1vTzM67tKaT777ZqzWd2m7105q2ZP2HNt+YdviVJuxV
Vaf9g0zagmE1MDq9jfsfk/7il7ykjrf+hlpxTDK0mQXktVzaOn8kM2und5ycvPvXIqFgzmwi6bCsZlp1kSbTpa4hH64a4wSD
ntrGZEY2l0nbO/nyl4aFIp836Gdts8YacWLuuWjsqUEhxI5ONGWHUWxuffbiXmOr2a+Yzt5Q+bo1PC7HaBy3dS0P48bLN9dv
hj+PHJChMchYf2u9x1y/Snds3edfX42Hs6yDYSaW7J67b0rJ8n8r9AWl
"""
    )
)
