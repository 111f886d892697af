"""Files of arrays and of index libraries: their arrays, their ids, and how numbers are stored.

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
# Names of arrays and columns, letters and digits alone; the first that exists is taken.
VECTOR_NAMES = ("vector", "embedding", "embeddings", "emb", "values", "vectors")
ID_NAMES = (
    *("id", "ids", "docno", "docid", "documentid", "corpusid", "passageid", "pid", "did"),
    *("queryid", "qid", "topicid", "topic", "query", "document", "doc"),
)
_SAFETENSORS_DTYPES = {
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
_NARROW_FLOATS = {"BF16": "bfloat16", "F8_E4M3": "float8_e4m3", "F8_E5M2": "float8_e5m2"}


@dataclass(frozen=True, slots=True)
class ArrayFile:
    """The arrays of a file by name, and the format that an index stores them in."""

    arrays: Mapping[str, Any]  # numpy's, or lists of ids
    stored: str | None = None  # by an index, where that is narrower than float32
    ids: pl.Series | None = None  # of an index

    def find_array(self, names: Iterable[str], dimensions: tuple[int, ...], label: str) -> Array:
        """Return the only array with so many axes, or the one with one of the names."""
        matches = {
            name: array
            for name, array in self.arrays.items()
            if isinstance(array, np.ndarray)
            and array.dtype.kind in "fiubV"
            and array.ndim in dimensions
        }
        if len(matches) == 1:
            return next(iter(matches.values()))
        by_letters = {letters_of(name): array for name, array in matches.items()}
        for name in names:
            if name in by_letters:
                return by_letters[name]
        if matches:
            problem = f"{len(matches)} arrays that could be meant"
        else:
            problem = f"no array of {' or '.join(map(str, dimensions))} dimensions"
        raise InputError(
            f"{problem}; there are: {list_names(self.arrays)}",
            place=label,
            remedy=f"name one of them {next(iter(names))!r}",
        )

    def find_ids(self, names: Iterable[str], rows: int) -> pl.Series | None:
        """Return the ids under one of these names, or of an index, if there is one per row."""
        by_letters = {letters_of(name): array for name, array in self.arrays.items()}
        for name in names:
            column = by_letters.get(name)
            if column is None or len(column) != rows or getattr(column, "ndim", 1) != 1:
                continue
            ids = column.tolist() if isinstance(column, np.ndarray) else list(column)
            if all(isinstance(one_id, str | int) for one_id in ids):
                return pl.Series("id", [str(one_id) for one_id in ids], pl.String)
        return self.ids if self.ids is not None and len(self.ids) == rows else None


def read_arrays(source: Source) -> ArrayFile | None:
    """Return the arrays of a file or an index; None for any other kind of file."""
    head = source.head
    if head.startswith(NPY):
        return ArrayFile({"array": _read_npy(source.read(), source.label)})
    if head.startswith(b"PK\x03\x04"):
        return _read_zip(source)
    if head.startswith(b"\x80\x02"):  # torch before 1.6
        return ArrayFile(_read_torch(source))
    if head[8:9] == b"{" and struct.unpack("<Q", head[:8])[0] < 1 << 27:
        return _read_safetensors(source)
    if (
        re.match(rb"I[A-Za-z0-9]{3}(?s:....)", head)
        and 0 < struct.unpack("<i", head[4:8])[0] < 1 << 24
    ):
        return _read_faiss(source)
    if _is_usearch(source):
        return _read_usearch(source)
    return None


def narrow_format(array: Array) -> str | None:
    """Return the format of the numbers, if it is narrower than float32."""
    is_narrow = array.dtype.kind in "fV" and array.dtype.itemsize < 4
    return str(array.dtype) if is_narrow else None


def note_narrow_storage(label: str, stored: str | None) -> list[str]:
    """Return the note on numbers that are stored in a format narrower than float32."""
    if stored is None:
        return []
    return [f"{Path(label).name}: stored as {stored}; float32 scores the numbers stored"]


def letters_of(name: str) -> str:
    """Return the letters and digits of a name, in lower case."""
    return "".join(c for c in name.lower() if c.isalnum())


def list_names(names: Iterable[str]) -> str:
    """Return the first names of a file's arrays or columns, for messages."""
    return ", ".join(shorten(name, 30) for name in list(names)[:12])


def _read_npy(data: bytes, label: str) -> Array:
    """Return the array of a .npy file."""
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
    if array.dtype == np.dtype("V2"):  # bfloat16 as ml_dtypes writes it
        array = array.view(numpy_dtype("bfloat16"))
    return np.asarray(array)


def _read_zip(source: Source) -> ArrayFile:
    """Return the arrays of numpy's .npz or torch's .pt."""
    try:
        with zipfile.ZipFile(io.BytesIO(source.read())) as archive:
            names = archive.namelist()
            if any(name.endswith("data.pkl") for name in names):
                return ArrayFile(_read_torch(source))
            parts = {
                name.removesuffix(".npy"): _read_npy(archive.read(name), f"{source.label}: {name}")
                for name in names
                if name.endswith(".npy")
            }
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError) as error:
        raise _broken_file(source, "a whole .npz or .pt file", error) from None
    return ArrayFile(parts)


def _read_torch(source: Source) -> dict[str, Any]:
    """Return the tensors of a .pt file as arrays, by name."""
    torch = import_extra("torch", "a .pt file", "torch")
    try:
        content = torch.load(io.BytesIO(source.read()), map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises what its unpickler meets
        raise InputError(
            "not a file of tensors alone, or cut short",
            place=source.label,
            remedy="save tensors, or a dict of them: what else it holds is never run",
        ) from error
    by_name = content if isinstance(content, dict) else {"array": content}
    return {str(name): _from_torch(value, torch) for name, value in by_name.items()}


def _from_torch(value: Any, torch: Any) -> Any:
    """Return a tensor as an array with the same bits; anything else unchanged."""
    if not isinstance(value, torch.Tensor):
        return value
    value = value.detach()
    if value.dtype == torch.bfloat16:
        return value.view(torch.int16).numpy().view(numpy_dtype("bfloat16"))
    form = str(value.dtype).removeprefix("torch.").removesuffix("fn")
    if form in _NARROW_FLOATS.values():
        return value.view(torch.uint8).numpy().view(numpy_dtype(form))
    if form.startswith("float8"):  # other 8-bit formats have no type in numpy
        return value.float().numpy()
    return value.numpy()


def _read_safetensors(source: Source) -> ArrayFile:
    """Return the tensors of a safetensors file."""
    data = source.read()
    (length,) = struct.unpack("<Q", data[:8])
    try:
        header = json.loads(data[8 : 8 + length])
        body = memoryview(data)[8 + length :]
        entries = {name: entry for name, entry in header.items() if name != "__metadata__"}
        arrays = {name: _read_tensor(name, entry, body) for name, entry in entries.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _broken_file(source, "a whole safetensors file", error) from None
    return ArrayFile(arrays)


def _read_tensor(name: str, entry: Any, body: memoryview) -> Array:
    """Return the array that an entry of the header describes."""
    begin, end = entry["data_offsets"]
    narrow = _NARROW_FLOATS.get(entry["dtype"])
    dtype = numpy_dtype(narrow) if narrow else np.dtype(_SAFETENSORS_DTYPES[entry["dtype"]])
    if not 0 <= begin <= end <= len(body):
        raise ValueError("it ends too early")
    if end - begin != math.prod(entry["shape"]) * dtype.itemsize:
        raise ValueError(f"{name} is not of its shape")
    return np.frombuffer(body[begin:end], dtype).reshape(entry["shape"])


def _read_faiss(source: Source) -> ArrayFile:
    """Return the vectors and ids of a FAISS index."""
    faiss = import_extra("faiss", "a FAISS index", "retrieval")
    read = _from_binary if source.head.startswith(b"IB") else _from_faiss
    try:
        return read(faiss, source.read())
    except Exception as error:  # faiss raises many kinds for files that it cannot decode
        raise _broken_file(source, "a FAISS index whose vectors can be decoded", error) from None


def _from_faiss(faiss: Any, data: bytes) -> ArrayFile:
    """Return the decoded vectors of an index of floats."""
    owner = faiss.deserialize_index(np.frombuffer(data, "u1"))  # its memory lives as long as it
    index = faiss.downcast_index(owner)
    ids = None
    if isinstance(index, faiss.IndexIDMap):
        ids = faiss.vector_to_array(index.id_map)
        index = faiss.downcast_index(index.index)
    if not index.ntotal:
        raise ValueError("it holds no vectors")
    if isinstance(index, faiss.IndexIVF):
        listed_ids = _ids_of_lists(faiss, index)
        index.set_direct_map_type(faiss.DirectMap.Hashtable)
        vectors = index.reconstruct_batch(listed_ids)
        ids = listed_ids if ids is None else ids[listed_ids]
    else:
        index.reconstruct(0)  # raises if it cannot; reconstruct_n would end the process
        vectors = index.reconstruct_n(0, index.ntotal)
    is_flat = isinstance(index, faiss.IndexFlat | faiss.IndexHNSWFlat | faiss.IndexIVFFlat)
    stored = None if is_flat else f"{type(index).__name__} of FAISS"
    del owner
    return _index_content(vectors, ids, stored)


def _from_binary(faiss: Any, data: bytes) -> ArrayFile:
    """Return the signs that an index of bits holds, packed as numpy packs them."""
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
        listed_ids = _ids_of_lists(faiss, index)
        parts = _content_of_lists(faiss, index, index.invlists.get_codes, index.code_size)
        codes = np.concatenate(parts).reshape(index.ntotal, -1)
        unsorted_ids = np.concatenate(_content_of_lists(faiss, index, index.invlists.get_ids))
        codes = codes[np.argsort(unsorted_ids)]
        ids = listed_ids if ids is None else ids[listed_ids]
    else:
        flat = faiss.downcast_IndexBinary(getattr(index, "storage", index))
        codes = faiss.vector_to_array(flat.xb)
    signs = np.unpackbits(codes.reshape(index.ntotal, -1), axis=1) * np.float32(2) - np.float32(1)
    del owner
    return _index_content(signs, ids, f"{name} of FAISS")


def _ids_of_lists(faiss: Any, index: Any) -> Array:
    """Return the ids in the lists of an inverted file, ascending."""
    return np.sort(np.concatenate(_content_of_lists(faiss, index, index.invlists.get_ids)))


def _content_of_lists(
    faiss: Any, index: Any, get: Callable[[int], Any], width: int = 1
) -> list[Array]:
    """Return the ids, or codes of so many bytes, of each list that is not empty."""
    lists = index.invlists
    return [
        faiss.rev_swig_ptr(get(number), lists.list_size(number) * width).copy()
        for number in range(index.nlist)
        if lists.list_size(number)
    ]


def _is_usearch(source: Source) -> bool:
    """True for a usearch index: its name follows the vectors, whose shape comes first."""
    if source.plain_size is None or len(source.head) < 16:
        return False
    for form, header_size in (("<II", 8), ("<QQ", 16)):
        rows, row_bytes = struct.unpack(form, source.head[:header_size])
        end = header_size + rows * row_bytes
        if end + 7 <= source.plain_size:
            with source.open() as file:
                file.seek(end)
                if file.read(7) == b"usearch":
                    return True
    return source.head.startswith(b"usearch")


def _read_usearch(source: Source) -> ArrayFile:
    """Return the vectors and keys of a usearch index."""
    usearch = import_extra("usearch.index", "a usearch index", "usearch")
    try:
        return _from_usearch(usearch.Index.restore(source.path))
    except Exception as error:  # usearch raises many kinds for files that it cannot read
        raise _broken_file(source, "a usearch index with its vectors", error) from None


def _from_usearch(index: Any) -> ArrayFile:
    """Return the vectors of an index by ascending key, bits as signs."""
    if index is None or not len(index) or index.multi:
        raise ValueError("it holds no vectors, or several of a key")
    keys = np.sort(np.asarray(index.keys, np.uint64))
    name = str(index.dtype).rpartition(".")[2].lower()
    if name == "b1":
        codes = np.stack(index.get(keys)).astype(np.uint8)
        vectors = np.unpackbits(codes, axis=1)[:, : index.ndim] * np.float32(2) - np.float32(1)
    else:
        vectors = np.stack(index.get(keys, dtype="f32")).astype(np.float32)
    return _index_content(vectors, keys, None if name in ("f32", "f64") else f"{name} of usearch")


def _index_content(vectors: Array, ids: Array | None, stored: str | None) -> ArrayFile:
    """Return the content of an index."""
    text_ids = None if ids is None else pl.Series("id", ids).cast(pl.String)
    return ArrayFile({"vectors": np.ascontiguousarray(vectors, np.float32)}, stored, text_ids)


def _broken_file(source: Source, kind: str, error: BaseException) -> InputError:
    """Return the error for a file that is not what its first bytes say."""
    return InputError(
        f"not {kind} ({shorten(first_line(error), 90)})",
        place=source.label,
        remedy="write the file again",
    )
