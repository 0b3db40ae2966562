"""How well the evidence is found: data sets, systems and measures, run through the real store."""
