"""An OpenFeature provider: boolean flags that exist already become dimmable.

    api.set_provider(BrownoutProvider(parts=["recommendations"], inner=FlagdProvider()))

    if client.get_boolean_value("recommendations", True):     # code that was there before
        page.recommendations = recommend(item)

A flag is dimmed only if it is named: switches for payments and migrations ride on boolean flags
too. Whether it is on at all is asked first, so a flag that is off is nothing that was left out.
Needs the package ``openfeature-sdk`` and one of the middlewares.
"""

from __future__ import annotations

from typing import Any, Callable, Collection, List, Mapping, Optional, Sequence, Union

from openfeature.evaluation_context import EvaluationContext
from openfeature.event import ProviderEvent, ProviderEventDetails
from openfeature.flag_evaluation import FlagResolutionDetails, FlagValueType
from openfeature.hook import Hook
from openfeature.provider import AbstractProvider, FeatureProvider, Metadata
from openfeature.provider.no_op_provider import NoOpProvider

from ._request import optional

__all__ = ["BROWNOUT", "BrownoutProvider"]

BROWNOUT = "BROWNOUT"
"""The reason in the details of a flag that was dimmed."""

Context = Optional[EvaluationContext]
Object = Union[Sequence[FlagValueType], Mapping[str, FlagValueType]]
OnEmit = Callable[[FeatureProvider, ProviderEvent, ProviderEventDetails], None]


class BrownoutProvider(AbstractProvider):
    """Answers as ``inner`` does, but ``False`` for a part that is left out of this request.

    ``parts`` are the keys of the boolean flags that stand for optional parts. Without ``inner``
    every flag has its default value.
    """

    def __init__(self, parts: Collection[str], inner: Optional[FeatureProvider] = None) -> None:
        super().__init__()
        if isinstance(parts, str):
            raise TypeError(f"parts is the text {parts!r}, but a list was expected: [{parts!r}]")
        self._parts = frozenset(parts)
        self._inner = inner if inner is not None else NoOpProvider()

    def resolve_boolean_details(
        self, flag_key: str, default_value: bool, evaluation_context: Context = None
    ) -> FlagResolutionDetails[bool]:
        inner = self._inner.resolve_boolean_details(flag_key, default_value, evaluation_context)
        return self._dimmed(flag_key, inner)

    async def resolve_boolean_details_async(
        self, flag_key: str, default_value: bool, evaluation_context: Context = None
    ) -> FlagResolutionDetails[bool]:
        inner = await self._inner.resolve_boolean_details_async(
            flag_key, default_value, evaluation_context
        )
        return self._dimmed(flag_key, inner)

    def _dimmed(
        self, flag_key: str, inner: FlagResolutionDetails[bool]
    ) -> FlagResolutionDetails[bool]:
        if flag_key not in self._parts or not inner.value or optional(flag_key):
            return inner
        return FlagResolutionDetails(False, reason=BROWNOUT, flag_metadata=inner.flag_metadata)

    # From here on everything is the inner provider's.

    def get_metadata(self) -> Metadata:
        return Metadata(name=f"brownout of {self._inner.get_metadata().name}")

    def get_provider_hooks(self) -> List[Hook]:
        return self._inner.get_provider_hooks()

    def initialize(self, evaluation_context: EvaluationContext) -> None:
        self._inner.initialize(evaluation_context)

    def shutdown(self) -> None:
        self._inner.shutdown()

    def attach(self, on_emit: OnEmit) -> None:
        super().attach(on_emit)
        self._inner.attach(lambda _, event, details: on_emit(self, event, details))

    def detach(self) -> None:
        self._inner.detach()
        super().detach()

    def track(self, *args: Any, **kwargs: Any) -> None:
        track = getattr(self._inner, "track", None)  # version 0.8 of the SDK has none
        if track is not None:
            track(*args, **kwargs)

    def resolve_string_details(
        self, flag_key: str, default_value: str, evaluation_context: Context = None
    ) -> FlagResolutionDetails[str]:
        return self._inner.resolve_string_details(flag_key, default_value, evaluation_context)

    async def resolve_string_details_async(
        self, flag_key: str, default_value: str, evaluation_context: Context = None
    ) -> FlagResolutionDetails[str]:
        return await self._inner.resolve_string_details_async(
            flag_key, default_value, evaluation_context
        )

    def resolve_integer_details(
        self, flag_key: str, default_value: int, evaluation_context: Context = None
    ) -> FlagResolutionDetails[int]:
        return self._inner.resolve_integer_details(flag_key, default_value, evaluation_context)

    async def resolve_integer_details_async(
        self, flag_key: str, default_value: int, evaluation_context: Context = None
    ) -> FlagResolutionDetails[int]:
        return await self._inner.resolve_integer_details_async(
            flag_key, default_value, evaluation_context
        )

    def resolve_float_details(
        self, flag_key: str, default_value: float, evaluation_context: Context = None
    ) -> FlagResolutionDetails[float]:
        return self._inner.resolve_float_details(flag_key, default_value, evaluation_context)

    async def resolve_float_details_async(
        self, flag_key: str, default_value: float, evaluation_context: Context = None
    ) -> FlagResolutionDetails[float]:
        return await self._inner.resolve_float_details_async(
            flag_key, default_value, evaluation_context
        )

    def resolve_object_details(
        self, flag_key: str, default_value: Object, evaluation_context: Context = None
    ) -> FlagResolutionDetails[Object]:
        return self._inner.resolve_object_details(flag_key, default_value, evaluation_context)

    async def resolve_object_details_async(
        self, flag_key: str, default_value: Object, evaluation_context: Context = None
    ) -> FlagResolutionDetails[Object]:
        return await self._inner.resolve_object_details_async(
            flag_key, default_value, evaluation_context
        )
