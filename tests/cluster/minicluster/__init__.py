"""A one-node Kubernetes cluster for tests and demonstrations, from pinned Go modules and Debian packages.

Standard library only: it runs before any virtual environment exists. Tests put `tests/cluster` on `sys.path` and use

* `minicluster.local.apiserver(folder)`: only etcd and kube-apiserver, without root;
* `minicluster.paths.KUBECONFIG`: the administrator's kubeconfig of the whole cluster that `cluster.py up` starts;
* `minicluster.volumes.provide(namespace)`: claims for the engine and the models in a namespace.
"""
