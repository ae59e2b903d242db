"""Losses over pairs of replies, from their log-probabilities alone.

Formulas are those of TRL 1.16's DPOTrainer (`_compute_loss`, without its extra divergences) and of its ORPOTrainer; a
test holds them against DPOTrainer itself. Papers: DPO 2305.18290 (sigmoid), SLiC 2305.10425 (hinge), IPO 2310.12036,
robust DPO 2403.00409, APO 2408.06266 (apo_zero), ORPO 2403.07691.
"""

from __future__ import annotations

import torch
from torch.nn import functional

from trainer_core.contract.method_options import PreferenceOptions
from trainer_core.trainers.comparing import Compared

IGNORED = -100


def log_probabilities(logits: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Of labels_NT (-100 is none) under logits_NTV: the sum over each sequence, and the number of its labels."""
    next_NT = labels[:, 1:]
    log_NT = -functional.cross_entropy(
        logits[:, :-1].float().transpose(1, 2), next_NT, ignore_index=IGNORED, reduction="none"
    )
    return log_NT.sum(1), next_NT.ne(IGNORED).sum(1)


def score(options: PreferenceOptions, logps: torch.Tensor, counts: torch.Tensor, reference: torch.Tensor) -> Compared:
    """logps_2B and counts_2B: all chosen replies, then all rejected ones; reference_B2.

    The values compared are rewards: beta times how much likelier a reply has become.
    """
    chosen, rejected = logps.chunk(2)
    n_chosen, n_rejected = counts.chunk(2)
    if options.loss == "orpo":
        return _odds(options.beta, chosen / n_chosen, rejected / n_rejected)
    better, worse = chosen - reference[:, 0], rejected - reference[:, 1]
    margin = options.beta * (better - worse)
    eps = options.label_smoothing
    if options.loss == "sigmoid":
        losses = -functional.logsigmoid(margin)
    elif options.loss == "robust":
        right, wrong = functional.logsigmoid(margin), functional.logsigmoid(-margin)
        losses = (-(1 - eps) * right + eps * wrong) / (1 - 2 * eps)
    elif options.loss == "hinge":
        losses = torch.relu(1 - margin)
    elif options.loss == "ipo":
        losses = (better / n_chosen - worse / n_rejected - 1 / (2 * options.beta)) ** 2
    else:
        losses = 1 - torch.sigmoid(options.beta * better) + torch.sigmoid(options.beta * worse)
    return Compared(losses, (options.beta * better).detach(), (options.beta * worse).detach())


def _odds(beta: float, chosen: torch.Tensor, rejected: torch.Tensor) -> Compared:
    """ORPO's loss (2403.07691), in the form of `odds_ratio_loss` of TRL 1.16's ORPOTrainer: from mean
    log-probabilities a token; the likelihood of the chosen reply is learnt beside the odds."""
    log_odds = (chosen - rejected) - (_log1m_exp(chosen) - _log1m_exp(rejected))
    losses = -chosen - beta * functional.logsigmoid(log_odds)
    return Compared(losses, (beta * chosen).detach(), (beta * rejected).detach())


def _log1m_exp(value: torch.Tensor) -> torch.Tensor:
    """log(1 - exp(value)) of negative values; a probability of 1 itself has no odds."""
    return torch.log(-torch.expm1(value.clamp(max=-1e-6)))
