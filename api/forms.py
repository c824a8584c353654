"""Forms, and proof that a form which comes back is one that we gave out to this browser."""

from __future__ import annotations

import hmac
import secrets
from typing import Annotated
from urllib.parse import parse_qs

from fastapi import Depends, Request, Response

from api.deps import settings_of
from api.problems import Problem

_COOKIE = "kernelwright_form"
_FIELD = "token"
_MOST_FIELDS = 200

Fields = dict[str, list[str]]


class FormKey:
    """A browser's random cookie, and the token that only we can make of it."""

    def __init__(self, request: Request) -> None:
        self.known = request.cookies.get(_COOKIE)
        self.cookie = self.known or secrets.token_urlsafe(24)
        self.secret = settings_of(request).secret
        self.secure = request.url.scheme == "https"

    @property
    def token(self) -> str:
        """What the form's hidden field must hold."""
        return hmac.digest(self.secret, self.cookie.encode(), "sha256").hex()

    def give(self, response: Response) -> None:
        """Sets the cookie in a browser that has none."""
        if self.known is None:
            response.set_cookie(
                _COOKIE, self.cookie, httponly=True, samesite="strict", secure=self.secure
            )


async def form_of(request: Request) -> Fields:
    """The fields of a form of ours. Raises a `Problem` if it is not one, or not for this browser.

    That it comes from our own origin was checked by the guard.
    """
    if request.headers.get("content-type", "").partition(";")[0] != (
        "application/x-www-form-urlencoded"
    ):
        raise Problem("bad-request", "Send the form as application/x-www-form-urlencoded.")
    try:
        text = (await request.body()).decode()
        fields = parse_qs(text, keep_blank_values=True, max_num_fields=_MOST_FIELDS)
    except ValueError:
        raise Problem("bad-request", "The form cannot be read.") from None
    key = FormKey(request)
    if key.known is None or not hmac.compare_digest(
        only(fields, _FIELD).encode(), key.token.encode()
    ):
        raise Problem("stale-form", "Go back, load the page again, and send the form once more.")
    return fields


def only(fields: Fields, name: str) -> str:
    """A field's value; "" where it was left out."""
    return fields.get(name, [""])[0]


Form = Annotated[Fields, Depends(form_of)]
