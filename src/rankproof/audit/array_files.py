"""Arrays as people hold them: one array of a file, its ids where it has them, and how it is stored.

    .npy, .npz       numpy; bfloat16 as ml_dtypes writes it, which numpy reads as two bytes each
    .safetensors     read here: a header of JSON, then the bytes
    .pt, .pth        torch.load with weights_only, so that nothing in it runs
    FAISS, usearch   index files: what the index holds, decoded

Nothing is unpickled.
"""

from __future__ import annotations

import io
import json
import math
import re
import struct
import zipfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from rankproof.data.sources import Source
from rankproof.foundation.arrays import Array
from rankproof.foundation.errors import InputError, first_line, import_extra, shorten
from rankproof.precision.formats import numpy_dtype

NPY = b"\x93NUMPY"
VECTOR = ("vector", "embedding", "embeddings", "emb", "values", "vectors")
ID = (
    *("id", "ids", "docno", "docid", "documentid", "corpusid", "passageid", "pid", "did"),
    *("queryid", "qid", "topicid", "topic", "query", "document", "doc"),
)
# safetensors' names of what numpy has under others.
_SAFE = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "i1",
    "U8": "u1",
    "BOOL": "?",
}
_LOW = {"BF16": "bfloat16", "F8_E4M3": "float8_e4m3", "F8_E5M2": "float8_e5m2"}


@dataclass(frozen=True, slots=True)
class Held:
    """The arrays of a file by name, and what to say of how they are stored."""

    arrays: Mapping[str, Any]  # numpy's, or lists of ids
    stored: str | None = None  # by an index, where that is less than float32
    ids: pl.Series | None = None  # of an index

    def one(self, names: Iterable[str], dimensions: tuple[int, ...], label: str) -> Array:
        """The only array of so many dimensions, or the one that bears a name."""
        fits = {
            name: array
            for name, array in self.arrays.items()
            if isinstance(array, np.ndarray)
            and array.dtype.kind in "fiubV"
            and array.ndim in dimensions
        }
        if len(fits) == 1:
            return next(iter(fits.values()))
        plain = {_letters(name): array for name, array in fits.items()}
        found = next((plain[name] for name in names if name in plain), None)
        if found is not None:
            return found
        have = ", ".join(shorten(name, 30) for name in list(self.arrays)[:12])
        raise InputError(
            f"{len(fits)} arrays that could be meant; there are: {have}"
            if fits
            else f"no array of {' or '.join(map(str, dimensions))} dimensions; there are: {have}",
            place=label,
            remedy=f"name one of them {next(iter(names))!r}",
        )

    def texts(self, names: Iterable[str], rows: int) -> pl.Series | None:
        """Ids that bear one of these names, one for each row."""
        plain = {_letters(name): array for name, array in self.arrays.items()}
        for name in names:
            found = plain.get(name)
            if found is None or len(found) != rows or getattr(found, "ndim", 1) != 1:
                continue
            listed = found.tolist() if isinstance(found, np.ndarray) else list(found)
            if all(isinstance(one, str | int) for one in listed):
                return pl.Series("id", [str(one) for one in listed], pl.String)
        return self.ids if self.ids is not None and len(self.ids) == rows else None


def read_held(source: Source) -> Held | None:
    """What a file of arrays or an index holds; None where it is none of these."""
    head = source.head
    if head.startswith(NPY):
        return Held({"array": _npy(source.read(), source.label)})
    if head.startswith(b"PK\x03\x04"):
        return _zipped(source)
    if head.startswith(b"\x80\x02"):  # torch before 1.6
        return Held(_torch(source))
    if head[8:9] == b"{" and struct.unpack("<Q", head[:8])[0] < 1 << 27:
        return _safetensors(source)
    if (
        re.match(rb"I[A-Za-z0-9]{3}(?s:....)", head)
        and 0 < struct.unpack("<i", head[4:8])[0] < 1 << 24
    ):
        return _faiss(source)
    if _is_usearch(source):
        return _usearch(source)
    return None


def narrow(array: Array) -> str | None:
    """The format of numbers, where that is less than float32."""
    low = array.dtype.kind in "fV" and array.dtype.itemsize < 4
    return str(array.dtype) if low else None


def stored_as(label: str, stored: str | None) -> list[str]:
    """What is told of numbers that are stored in less than float32."""
    if stored is None:
        return []
    return [f"{Path(label).name}: stored as {stored}; float32 scores the numbers stored"]


def _letters(name: str) -> str:
    return "".join(c for c in name.lower() if c.isalnum())


def _npy(data: bytes, label: str) -> Array:
    try:
        # Never unpickled: an object array can run any code.
        array = np.load(io.BytesIO(data), allow_pickle=False)
    except (ValueError, OSError, EOFError, MemoryError) as error:
        if isinstance(error, MemoryError):  # more often a header that lies than an honest array
            problem, remedy = f"too large for memory ({first_line(error)})", "check the file"
        elif "allow_pickle" in str(error):
            problem, remedy = "an array of Python objects", "save it as float32, one row a vector"
        else:
            problem = f"not a whole .npy file ({first_line(error)})"
            remedy = "write the file again"
        raise InputError(problem, place=label, remedy=remedy) from None
    if array.dtype == np.dtype("V2"):  # what numpy makes of ml_dtypes' bfloat16
        array = array.view(numpy_dtype("bfloat16"))
    return np.asarray(array)


def _zipped(source: Source) -> Held:
    """numpy's .npz, or torch's .pt."""
    try:
        with zipfile.ZipFile(io.BytesIO(source.read())) as archive:
            names = archive.namelist()
            if any(name.endswith("data.pkl") for name in names):
                return Held(_torch(source))
            parts = {
                name.removesuffix(".npy"): _npy(archive.read(name), f"{source.label}: {name}")
                for name in names
                if name.endswith(".npy")
            }
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError) as error:
        raise _broken(source, "a whole .npz or .pt file", error) from None
    return Held(parts)


def _torch(source: Source) -> dict[str, Any]:
    torch = import_extra("torch", "a .pt file", "torch")
    try:
        found = torch.load(io.BytesIO(source.read()), map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises what its unpickler meets
        raise InputError(
            "not a file of tensors alone, or cut short",
            place=source.label,
            remedy="save tensors, or a dict of them: what else it holds is never run",
        ) from error
    named = found if isinstance(found, dict) else {"array": found}
    return {str(name): _from_torch(value, torch) for name, value in named.items()}


def _from_torch(value: Any, torch: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    value = value.detach()
    if value.dtype == torch.bfloat16:
        return value.view(torch.int16).numpy().view(numpy_dtype("bfloat16"))
    form = str(value.dtype).removeprefix("torch.").removesuffix("fn")
    if form in _LOW.values():
        return value.view(torch.uint8).numpy().view(numpy_dtype(form))
    if form.startswith("float8"):  # of kinds that have no format here
        return value.float().numpy()
    return value.numpy()


def _safetensors(source: Source) -> Held:
    data = source.read()
    (length,) = struct.unpack("<Q", data[:8])
    try:
        header = json.loads(data[8 : 8 + length])
        body = memoryview(data)[8 + length :]
        named = {name: how for name, how in header.items() if name != "__metadata__"}
        arrays = {name: _tensor(name, how, body) for name, how in named.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _broken(source, "a whole safetensors file", error) from None
    return Held(arrays)


def _tensor(name: str, how: Any, body: memoryview) -> Array:
    begin, end = how["data_offsets"]
    low = _LOW.get(how["dtype"])
    dtype = np.dtype(_SAFE[how["dtype"]]) if low is None else numpy_dtype(low)
    if not 0 <= begin <= end <= len(body):
        raise ValueError("it ends too early")
    if end - begin != math.prod(how["shape"]) * dtype.itemsize:
        raise ValueError(f"{name} is not of its shape")
    return np.frombuffer(body[begin:end], dtype).reshape(how["shape"])


def _faiss(source: Source) -> Held:
    faiss = import_extra("faiss", "a FAISS index", "retrieval")
    read = _from_binary if source.head.startswith(b"IB") else _from_faiss
    try:
        return read(faiss, source.read())
    except Exception as error:  # whatever faiss raises for a file or an index that it cannot decode
        raise _broken(source, "a FAISS index whose vectors can be decoded", error) from None


def _from_faiss(faiss: Any, data: bytes) -> Held:
    owner = faiss.deserialize_index(np.frombuffer(data, "u1"))  # frees what it holds with itself
    index = faiss.downcast_index(owner)
    ids = None
    if isinstance(index, faiss.IndexIDMap):
        ids = faiss.vector_to_array(index.id_map)
        index = faiss.downcast_index(index.index)
    if not index.ntotal:
        raise ValueError("it holds no vectors")
    if isinstance(index, faiss.IndexIVF):
        own = _inverted(faiss, index)
        index.set_direct_map_type(faiss.DirectMap.Hashtable)
        vectors = index.reconstruct_batch(own)
        ids = own if ids is None else ids[own]
    else:
        # One at a time first: reconstruct_n of an index that cannot ends the process.
        index.reconstruct(0)
        vectors = index.reconstruct_n(0, index.ntotal)
    flat = isinstance(index, faiss.IndexFlat | faiss.IndexHNSWFlat | faiss.IndexIVFFlat)
    stored = None if flat else f"{type(index).__name__} of FAISS"
    del owner
    return _indexed(vectors, ids, stored)


def _from_binary(faiss: Any, data: bytes) -> Held:
    """Bits as signs, the first of a byte in its highest place, as numpy packs them."""
    owner = faiss.deserialize_index_binary(np.frombuffer(data, "u1"))
    index = faiss.downcast_IndexBinary(owner)
    ids = None
    if isinstance(index, faiss.IndexBinaryIDMap):
        ids = faiss.vector_to_array(index.id_map)
        index = faiss.downcast_IndexBinary(index.index)
    name = type(index).__name__
    if not index.ntotal:
        raise ValueError("it holds no vectors")
    if isinstance(index, faiss.IndexBinaryIVF):
        own = _inverted(faiss, index)
        parts = _of_lists(faiss, index, lambda lists, at: lists.get_codes(at), index.code_size)
        codes = np.concatenate(parts).reshape(index.ntotal, -1)
        codes = codes[np.argsort(np.concatenate(_of_lists(faiss, index)))]
        ids = own if ids is None else ids[own]
    else:
        flat = faiss.downcast_IndexBinary(getattr(index, "storage", index))
        codes = faiss.vector_to_array(flat.xb)
    signs = np.unpackbits(codes.reshape(index.ntotal, -1), axis=1) * np.float32(2) - np.float32(1)
    del owner
    return _indexed(signs, ids, f"{name} of FAISS")


def _inverted(faiss: Any, index: Any) -> Array:
    """The ids that the lists of an inverted file hold, in ascending order."""
    return np.sort(np.concatenate(_of_lists(faiss, index)))


def _of_lists(
    faiss: Any,
    index: Any,
    get: Callable[[Any, int], Any] = lambda lists, at: lists.get_ids(at),
    width: int = 1,
) -> list[Array]:
    """Ids, or codes of so many bytes, of each list that has some."""
    lists = index.invlists
    return [
        faiss.rev_swig_ptr(get(lists, at), lists.list_size(at) * width).copy()
        for at in range(index.nlist)
        if lists.list_size(at)
    ]


def _is_usearch(source: Source) -> bool:
    """Its mark stands after the vectors, whose rows and bytes a row come first."""
    if source.plain_size is None or len(source.head) < 16:
        return False
    for form, begin in (("<II", 8), ("<QQ", 16)):
        rows, wide = struct.unpack(form, source.head[:begin])
        at = begin + rows * wide
        if at + 7 <= source.plain_size:
            with source.open() as file:
                file.seek(at)
                if file.read(7) == b"usearch":
                    return True
    return source.head.startswith(b"usearch")


def _usearch(source: Source) -> Held:
    usearch = import_extra("usearch.index", "a usearch index", "usearch")
    try:
        return _from_usearch(usearch.Index.restore(source.path))
    except Exception as error:  # whatever usearch raises for a file that it cannot read
        raise _broken(source, "a usearch index with its vectors", error) from None


def _from_usearch(index: Any) -> Held:
    if index is None or not len(index) or index.multi:
        raise ValueError("it holds no vectors, or several of a key")
    keys = np.sort(np.asarray(index.keys, np.uint64))
    name = str(index.dtype).rpartition(".")[2].lower()
    if name == "b1":
        codes = np.stack(index.get(keys)).astype(np.uint8)
        vectors = np.unpackbits(codes, axis=1)[:, : index.ndim] * np.float32(2) - np.float32(1)
    else:
        vectors = np.stack(index.get(keys, dtype="f32")).astype(np.float32)
    return _indexed(vectors, keys, None if name in ("f32", "f64") else f"{name} of usearch")


def _indexed(vectors: Array, ids: Array | None, stored: str | None) -> Held:
    named = None if ids is None else pl.Series("id", ids).cast(pl.String)
    return Held({"vectors": np.ascontiguousarray(vectors, np.float32)}, stored, named)


def _broken(source: Source, what: str, error: BaseException) -> InputError:
    return InputError(
        f"not {what} ({shorten(first_line(error), 90)})",
        place=source.label,
        remedy="write the file again",
    )
