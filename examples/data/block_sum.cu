extern "C" __global__ void block_sum(const float *x, float *out) {
    __shared__ float part[256];
    int t = threadIdx.x;
    part[t] = x[blockIdx.x * 256 + t];
    __syncthreads();
#pragma unroll 1
    for (int half = 128; half > 0; half /= 2)
        if (t < half) part[t] += part[t + half];
    if (t == 0) out[blockIdx.x] = part[0];
}
