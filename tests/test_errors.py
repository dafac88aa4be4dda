import pytest

from pyes.errors import ConfigError, missing


@pytest.mark.parametrize(
    ("packages", "advice", "text"),
    [
        ("onnx", "", 'export needs the package onnx: pip install "pyes-rl[x]" (No module y)'),
        (
            "a and b",
            ", or not",
            'export needs the packages a and b: pip install "pyes-rl[x]", or not (No module y)',
        ),
    ],
)
def test_missing_packages_are_named_with_the_extra_that_brings_them(packages, advice, text):
    error = missing("export", packages, "x", ImportError("No module y"), advice)
    assert (type(error), str(error)) == (ConfigError, text)
