"""A card whose MLP core is the oracle."""

from golden.mlp.core import Memory
from hw.isa import MLP
from tests.support import oracle_card


class OracleCard(oracle_card.OracleCard):
    kernel = MLP

    def carry_out(self, program, arena, arguments):
        return self.core.run(Memory(program, arena["inputs"], arena["weights"], arena["outputs"]))
