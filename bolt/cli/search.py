"""The stage of the search of hyper-parameters."""

from __future__ import annotations

from bolt import config as configuration
from bolt.cli.shared import Shared
from bolt.io.errors import ConfigError
from bolt.jobs.provenance import beside
from bolt.training.tuning.space import check_search


class SearchStages(Shared):
    """One command a method."""

    def search(self) -> None:
        """Search on one fold; or, without one, on all that a scheme needs, and write what they chose."""
        from bolt.training.tuning.choice import write_choice
        from bolt.training.tuning.objective import Objective
        from bolt.training.tuning.search import search_fold

        options, settings = self.options, self.config.search
        check_search(self.config)
        model, space = self._searched(), configuration.load_space(settings.space)
        needed = self.config.folds_searched(model.name, options.scheme)
        studies = {fold: self.layout.study(options.atlas, model.name, fold) for fold in needed}
        for fold in needed if options.fold is None else [options.fold]:
            objective = Objective(
                self.layout.cache(options.atlas),
                self.layout.folds,
                model,
                self.dataset,
                fold,
                settings.seed,
                self.config.device,
                options.threads,
            )
            out = self.layout.study(options.atlas, model.name, fold)
            scratch = self.layout.work / "search" / out.relative_to(self.layout.results / "search")
            search_fold(objective, model, space, settings.n_trials, out, scratch)
            if options.fold is not None or not (out / "provenance.json").is_file():  # else it was searched before
                manifest = self.layout.cache(options.atlas) / "manifest.json"
                self._note(out / "provenance.json", [manifest, self.layout.folds], fold=fold, seed=settings.seed)
        if options.fold is None:
            choice = self.layout.choice(options.atlas, options.scheme, model.name)
            write_choice(studies, model, options.scheme, choice)
            self._note(beside(choice), [study / "best.json" for study in studies.values()], seed=settings.seed)

    def _searched(self) -> configuration.Model:
        known = {model.name: model for model in map(configuration.load_model, self.config.searched)}
        if self.options.model not in known:
            raise ConfigError(
                f"model '{self.options.model}' is not among those that are searched",
                hint=f"Known: {', '.join(known)}; 'search: models' of the configuration names them",
            )
        return known[self.options.model]
