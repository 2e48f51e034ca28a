"""A table of weights: heedful's own names with slashes for dots, as a port to JAX may write them.

heedful import weights.safetensors --plugin slashes.py --layout slashes:SLASHES -o model
"""

from heedful.interop.tables import Table

SLASHES = Table("""
    {stack}/layers/{i}/                                   {stack}.layers.{i}.
        {self,cross}_attention/query                      {self,cross}_attention.query
        {self,cross}_attention/key                        {self,cross}_attention.key
        {self,cross}_attention/value                      {self,cross}_attention.value
        {self,cross}_attention/output                     {self,cross}_attention.output
        feed_forward/{inner,outer}                        feed_forward.{inner,outer}
        {self_attention,cross_attention,feed_forward}_norm  {self_attention,cross_attention,feed_forward}_norm
    {stack}/embedding/tokens                              {stack}.embedding.tokens
    output|decoder/embedding/tokens                       output
""")
