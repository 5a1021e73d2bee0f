"""Files against their schema: pydantic finds the fault, this module says it in the project's words.

Every file of the project (scenarios, pools, catalog entries) is declared as a pydantic model derived from
``FileModel``; ``validate`` turns the first fault into an InputError with file, key path, value, rule and nearest.
"""

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from costmodel.errors import InputError
from costmodel.fields import nearest_names


class FileModel(BaseModel):
    """Base of every file schema: unknown keys are refused, values are frozen."""

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)


_Model = TypeVar("_Model", bound=FileModel)

_RULES = {
    "missing": "is required",
    "extra_forbidden": "is not a key here",
    "int_parsing": "must be a whole number",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_parsing": "must be a number",
    "float_type": "must be a number",
    "string_type": "must be text",
    "bool_parsing": "must be true or false",
    "bool_type": "must be true or false",
    "list_type": "must be a list",
    "tuple_type": "must be a list",
    "dict_type": "must be a mapping of keys to values",
    "model_type": "must be a mapping of keys to values",
    "finite_number": "must be a finite number",
}


def validate(schema: type[_Model], data: object, file: str | None, prefix: str = "") -> _Model:
    """Return ``data`` as ``schema``.

    Args:
        schema: The declared shape of the file or of the part below ``prefix``.
        data: What YAML or JSON gave.
        file: Name shown in errors.
        prefix: Key path of ``data`` inside the file.

    Raises:
        InputError: Naming the first fault.
    """
    if not isinstance(data, Mapping):
        raise InputError(
            "must be a mapping of keys to values", file=file, key=prefix or None, value=data
        )
    try:
        return schema.model_validate(dict(data))
    except ValidationError as error:
        raise _input_error(error, schema, file, prefix) from error


def _input_error(
    error: ValidationError, schema: type[FileModel], file: str | None, prefix: str
) -> InputError:
    fault = error.errors(include_url=False)[0]
    inner = fault.get("ctx", {}).get("error")
    key = ".".join(part for part in (prefix, _path(fault["loc"])) if part)
    if isinstance(inner, InputError):
        return InputError(
            inner.rule, file=file, key=inner.key or key, value=inner.value, nearest=inner.nearest
        )
    kind = fault["type"]
    return InputError(
        _RULES.get(kind, fault["msg"][:1].lower() + fault["msg"][1:]),
        file=file,
        key=key,
        value=None if kind == "missing" else fault["input"],
        nearest=_nearest(fault, schema),
    )


def _path(location: tuple[int | str, ...]) -> str:
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return text.lstrip(".")


def _nearest(fault: Any, schema: type[FileModel]) -> object:
    context = fault.get("ctx", {})
    for bound in ("ge", "le", "expected"):
        if bound in context:
            return context[bound]
    if "gt" in context:
        return f"above {context['gt']}"
    if fault["type"] == "extra_forbidden":
        return nearest_names(str(fault["loc"][-1]), _keys_at(schema, fault["loc"][:-1]))
    return None


def _keys_at(schema: type[FileModel], location: tuple[int | str, ...]) -> tuple[str, ...]:
    """Return the keys that ``schema`` allows at ``location``."""
    here: type[FileModel] = schema
    for part in location:
        field = here.model_fields.get(str(part))
        if field is None:
            continue
        nested = [item for item in _leaves(field.annotation) if issubclass(item, FileModel)]
        if not nested:
            return ()
        here = nested[0]
    return tuple(field.alias or name for name, field in here.model_fields.items())


def _leaves(annotation: Any) -> list[type]:
    arguments = getattr(annotation, "__args__", ())
    if arguments:
        return [leaf for argument in arguments for leaf in _leaves(argument)]
    return [annotation] if isinstance(annotation, type) else []
