"""A classifier for scikit-learn's cross-validation, searches and pipelines.

python examples/estimator.py

Prints the accuracy of five-fold cross-validation on the 150 irises, about 95 %. Wants scikit-learn.
"""

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.datasets import load_iris
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

import minigrad
from minigrad import models, nn, optim


class Classifier(ClassifierMixin, BaseEstimator):
    """A network of minigrad.models by its name, trained by Adam; equal seeds give equal bits.

    Shapes  X (N, F) for "mlp", (N, C, H, W) for the networks of images; y (N,), labels of any kind
    """

    def __init__(self, model="mlp", epochs=20, lr=1e-2, batch_size=32, seed=0):
        self.model = model
        self.epochs = epochs
        self.lr = lr
        self.batch_size = batch_size
        self.seed = seed

    def fit(self, X, y):
        X, y = validate_data(self, X, y, dtype=np.float32, allow_nd=True)
        check_classification_targets(y)
        self.classes_, numbers = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError("fit: y has one class, wanted at least two")
        minigrad.manual_seed(self.seed)  # of the first weights
        shape = X.shape[1:] if X.ndim == 4 else (X.shape[1], 1, 1)
        self.model_ = models.build(self.model, shape, len(self.classes_))
        optimizer = optim.Adam(self.model_.parameters(), lr=self.lr)
        order, batches = np.random.default_rng(self.seed), -(-len(X) // self.batch_size)
        for _ in range(self.epochs):
            for chosen in np.array_split(order.permutation(len(X)), batches):
                images, labels = minigrad.Tensor(X[chosen]), minigrad.Tensor(numbers[chosen])
                optimizer.zero_grad()
                nn.functional.cross_entropy(self.model_(images), labels).backward()
                optimizer.step()
        self.model_.eval()
        return self

    def __setstate__(self, state):
        """joblib may map arrays from a file, read-only; the kernels want arrays in memory."""
        super().__setstate__(state)
        if "model_" in state:
            for tensor in (*self.model_.parameters(), *self.model_.buffers()):
                tensor.data = np.array(tensor.array)

    def predict_proba(self, X):
        """The probability of each class, (N, classes)."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float32, allow_nd=True, reset=False)
        with minigrad.no_grad():
            return self.model_(minigrad.Tensor(X)).softmax(1).numpy()

    def predict(self, X):
        numbers = self.predict_proba(X).argmax(1)
        return self.classes_[numbers]


def main():
    samples, numbers = load_iris(return_X_y=True)
    names = np.array(["setosa", "versicolor", "virginica"])[numbers]
    scores = cross_val_score(make_pipeline(StandardScaler(), Classifier()), samples, names, cv=5)
    print(f"accuracy {100 * scores.mean():.1f} %")
    return scores.mean()


if __name__ == "__main__":
    main()
