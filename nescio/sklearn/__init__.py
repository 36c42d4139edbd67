"""scikit-learn estimators: `BayesianRegressor` and `BayesianClassifier`. Needs the extra `sklearn`.

    model = BayesianRegressor().fit(X, y)
    mean, sd = model.predict(X, return_std=True)
    low, high = model.predict_interval(X, 0.9)

They work in a Pipeline, in GridSearchCV (`method`, `prior`, `hidden`, ... are parameters), and take DataFrames.
"""

try:
    import sklearn  # noqa: F401
except ImportError as error:
    from nescio.errors import UnsupportedError

    raise UnsupportedError(
        "these estimators need scikit-learn", "no scikit-learn", "pip install 'nescio[sklearn]'"
    ) from error

from nescio.sklearn.classifier import BayesianClassifier
from nescio.sklearn.regressor import BayesianRegressor

__all__ = ["BayesianClassifier", "BayesianRegressor"]
