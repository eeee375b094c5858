"""What the system says about itself: SHOW and the system relations."""
