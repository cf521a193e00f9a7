"""Forms: described once as data, shown by one template, read and answered for in one way."""

from hopline_console.forms.fields import Choice, Field, choices_of
from hopline_console.forms.form import Filled, Form

__all__ = ["Choice", "Field", "Filled", "Form", "choices_of"]
