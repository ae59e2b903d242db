"""From an exception to the one error shape: {"error": {"code", "message", "param", "details"}}.

Core raises, this module translates, routes never catch.
"""

from __future__ import annotations

import inspect
import logging
from functools import lru_cache
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from api.core import errors
from api.core.specs import detail_of
from trainer_core.problems import from_validation_error

log = logging.getLogger(__name__)

STATUS: dict[type[errors.TrainyardError], int] = {
    errors.NotFound: 404,
    errors.Invalid: 422,
    errors.Conflict: 409,
    errors.Unauthenticated: 401,
    errors.Denied: 403,
    errors.TooLarge: 413,
    errors.TooMany: 429,
    errors.Unavailable: 503,
}
RETRY_AFTER_S = {429: "5", 503: "2"}
BAD_REQUEST = frozenset({"json_invalid", "body_not_json", "header_invalid"})
# An error is read by people and kept in logs: a body of some hundred kilobytes of unknown keys may not grow into one of
# twenty megabytes.
MAX_DETAILS = 100
MAX_TEXT = 2000
MAX_PARAM = 300
HTTP_CODES = {400: "bad_request", 404: "not_found", 405: "method_not_allowed", 413: "too_large", 415: "body_not_json"}


def answer(
    status: int,
    code: str,
    message: str,
    *,
    param: str | None = None,
    details: list[dict[str, Any]] | None = None,
    headers: dict[str, str] | None = None,
) -> JSONResponse:
    """The one error shape as a response, its texts and its list of faults cut to a length."""
    details = details or []
    message = _cut(message, MAX_TEXT)
    if len(details) > MAX_DETAILS:
        message = f"{message} ({len(details)} faults in all, the first {MAX_DETAILS} are listed)"
    shown = [{name: _cut(value, _room(name)) for name, value in detail.items()} for detail in details[:MAX_DETAILS]]
    error = {"code": code, "message": message, "param": _cut(param, MAX_PARAM), "details": shown}
    return JSONResponse({"error": error}, status_code=status, headers=headers)


def _room(name: str) -> int:
    return MAX_PARAM if name == "param" else MAX_TEXT


def _cut(value: Any, longest: int) -> Any:
    return f"{value[:longest]}…" if isinstance(value, str) and len(value) > longest else value


def answer_for(error: errors.TrainyardError) -> JSONResponse:
    """The response for an error of the core."""
    status = next((STATUS[kind] for kind in type(error).__mro__ if kind in STATUS), 500)
    if error.code in BAD_REQUEST:
        status = 400
    headers = {}
    if status == 401:
        headers["WWW-Authenticate"] = 'Bearer realm="trainyard"'
    if status in RETRY_AFTER_S:
        headers["Retry-After"] = RETRY_AFTER_S[status]
    return answer(status, error.code, error.message, param=error.param, details=error.details, headers=headers)


def install(app: FastAPI) -> None:
    """Have every exception answered in the one shape. Unexpected ones are caught further out, in `api/edge.py`."""
    app.add_exception_handler(errors.TrainyardError, _of_the_core)
    app.add_exception_handler(RequestValidationError, _of_validation)
    app.add_exception_handler(HTTPException, _of_http)
    app.add_exception_handler(OperationalError, _of_the_database)
    app.add_exception_handler(InterfaceError, _of_the_database)
    app.add_exception_handler(PoolTimeout, _of_the_database)


async def _of_the_core(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, errors.TrainyardError)
    return answer_for(error)


async def _of_http(request: Request, error: Exception) -> JSONResponse:
    """Unknown paths, wrong methods, and what the framework itself refuses."""
    assert isinstance(error, HTTPException)
    messages = {
        404: f"there is nothing at {request.url.path}",
        405: f"{request.method} is not possible at {request.url.path}",
    }
    detail = str(error.detail)
    is_stock = detail in {"Not Found", "Method Not Allowed"}
    message = messages.get(error.status_code, detail) if is_stock else detail
    code = HTTP_CODES.get(error.status_code, "bad_request" if error.status_code < 500 else "internal")
    return answer(error.status_code, code, message, headers=dict(error.headers or {}))


async def _of_the_database(request: Request, error: Exception) -> JSONResponse:
    orig = error.orig if isinstance(error, DBAPIError) else error
    log.error("the database did not answer %s %s: %s", request.method, request.url.path, orig)
    unavailable = errors.Unavailable("the database does not answer; nothing was changed, try again in a moment")
    return answer_for(unavailable)


async def _of_validation(request: Request, error: Exception) -> JSONResponse:
    """Bad parameters and bodies: every fault with the path of its key, the first one also on top."""
    assert isinstance(error, RequestValidationError)
    faults = _body_faults(request, error) or [_fault(item) for item in error.errors()]
    first = faults[0]
    return answer(422, first["code"], first["message"], param=first["param"], details=faults)


def _body_faults(request: Request, error: RequestValidationError) -> list[dict[str, Any]]:
    """Faults of a JSON body, with the names that are valid: looked at once more by the model itself, which knows them.

    Empty when the fault is elsewhere, or is the body as a whole.
    """
    model = _body_model(request.scope["endpoint"])
    if model is None or any(item["loc"][0] != "body" for item in error.errors()):
        return []
    try:
        model.model_validate(error.body)
    except ValidationError as invalid:
        return [detail_of(problem) for problem in from_validation_error(invalid, model) if problem.param]
    return []


def _fault(item: dict[str, Any]) -> dict[str, Any]:
    where, *path = item["loc"]
    param = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).lstrip(".") or None
    return {"param": param, "message": f"{param or where}: {item['msg']}", "code": "invalid", "hint": None}


@lru_cache(maxsize=256)
def _body_model(endpoint: Any) -> type[BaseModel] | None:
    """The model of an endpoint's JSON body, which knows the names that are valid."""
    for parameter in inspect.signature(endpoint, eval_str=True).parameters.values():
        # Annotated[Model, Body(...)] is opened; everything else stands for itself.
        annotation = getattr(parameter.annotation, "__origin__", parameter.annotation)
        if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
            return annotation
    return None
