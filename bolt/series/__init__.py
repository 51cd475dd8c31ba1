"""ROI series: parcellation, denoising, the cache that training reads, connectivity, and spectra."""
