"""The configuration files of ``pyes train``, installed as the package ``pyes.conf`` so that Hydra finds them."""
