"""The operator: reads a VLMService and the cluster, decides every engine setting with its reason, and runs the pods."""
