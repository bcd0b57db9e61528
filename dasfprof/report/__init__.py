"""How a run is shown and exported: the HTML page, terminals, notebooks, other tools' formats."""
