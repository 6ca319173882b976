"""What a step of a model reads: its shape, from its own config, and its bytes, as stored."""

from tokenwatt_site.model_shape.config import describe
from tokenwatt_site.model_shape.kv_cache import kv_value_bytes
from tokenwatt_site.model_shape.width import require_width

__all__ = ["describe", "kv_value_bytes", "require_width"]
