"""The oracle: what each unit computes, bit for bit, and how many cycles it takes."""
