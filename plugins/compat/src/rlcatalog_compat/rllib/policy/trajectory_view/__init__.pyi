from rlcatalog import ViewRequirement as ViewRequirement
